package pods

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"weft/cmd/internal/podport"
)

// Each data plane counts its ports from 1.
func TestALostPortIsNotTheNextDataPlanes(t *testing.T) {
	s, p := attached(t, Options{}, "1", "2")
	s.Lost(2)
	p.close()
	s.Serve(nil, "another network configuration is being taken up")
	next := newPlane()
	defer next.close()
	s.Serve(next, "")
	s.reap()
	for _, p := range s.List().Pods {
		if p.State != podport.Attached {
			t.Errorf("%s is %s: %s", p.Key, p.State, p.Problem)
		}
	}
}

// A request may be under way when Run ends.
func TestAPodThatIsDetachedLastIsNotMissing(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "pods.json"), Logger: slog.New(slog.DiscardHandler)}
	s, p := attached(t, o, "1", "2")
	s.save()
	if _, err := s.Detach(request("2").Key); err != nil {
		t.Fatal(err)
	}
	p.close()
	s.Close()
	if l := New(o).List().Pods; len(l) != 1 || l[0].ID != "1" {
		t.Errorf("%+v", l)
	}
}

// Nobody reads from a pod that is missing, so its end shows in its namespace's alone.
func TestAMissingPodEndsWithItsNamespace(t *testing.T) {
	var freed []string
	o := Options{
		File: filepath.Join(t.TempDir(), "pods.json"), Logger: slog.New(slog.DiscardHandler),
		Free: func(r podport.Request) error { freed = append(freed, r.ID); return nil },
	}
	named := t.TempDir() + "/ns"
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, p := attached(t, o, "1")
	r := request("2", "10.42.1.52")
	r.Netns = named
	if _, err := s.Attach(r, []int{descriptor(t)}); err != nil {
		t.Fatal(err)
	}
	p.close()
	s.Close()
	s = New(o)
	defer s.Close()
	if s.forget(); len(s.List().Pods) != 2 {
		t.Errorf("%+v", s.List().Pods)
	}
	if err := os.Remove(named); err != nil {
		t.Fatal(err)
	}
	s.forget()
	if left := s.freeOwed(t.Context(), map[podport.Key]bool{}); left != 0 || len(s.List().Pods) != 1 ||
		!slices.Equal(freed, []string{"2"}) {
		t.Errorf("%+v, freed %v", s.List().Pods, freed)
	}
}

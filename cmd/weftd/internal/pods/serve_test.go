package pods

import (
	"log/slog"
	"path/filepath"
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

package pods

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The number of a process that weft attach was given in another PID namespace says nothing here.
func TestAProcessOfAnotherPIDNamespaceIsNotLookedAt(t *testing.T) {
	s, _ := attached(t, Options{})
	r := request("netns-1", "10.42.1.51")
	r.Netns = "/proc/self/ns/net"
	if _, err := s.Attach(r, []int{descriptor(t)}); err != nil {
		t.Fatal(err)
	}
	if p := s.pods[r.Key]; p.visible {
		t.Errorf("%s is taken for the namespace of %s", p.Netns, p.ID)
	}
}

// What could not be written, as on a full disk, is written when there is room, though nothing else has
// changed meanwhile; the log says it once.
func TestPodsAreSavedOnceThereIsRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the place of the directory
		t.Fatal(err)
	}
	var log strings.Builder
	o := Options{File: filepath.Join(dir, "pods.json"), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s, _ := attached(t, o, "1")
	s.save()
	s.save()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.save()
	if got, err := read(o.File); err != nil || len(got.Pods) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := strings.Count(log.String(), "pods are not saved"); n != 1 ||
		!strings.Contains(log.String(), "saved again") {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}
}

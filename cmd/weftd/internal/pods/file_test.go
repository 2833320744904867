package pods

import (
	"testing"
)

// The number of a process that weft attach was given in another PID namespace says nothing here.
func TestAProcessOfAnotherPIDNamespaceIsNotLookedAt(t *testing.T) {
	s, _ := attached(t, Options{})
	r := request("netns-1", "10.42.1.51")
	r.Netns = "/proc/self/ns/net"
	if _, err := s.Attach(r, descriptor(t), -1); err != nil {
		t.Fatal(err)
	}
	if p := s.pods[r.Key]; p.visible {
		t.Errorf("%s is taken for the namespace of %s", p.Netns, p.ID)
	}
}

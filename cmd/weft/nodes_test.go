package main

import (
	"strings"
	"testing"
)

func TestPeersTakesNodes(t *testing.T) {
	socket := start(t, &node{})
	out, _, err := weft(t, "peers", "10.0.0.3", "b", "--control-socket", socket)
	if err != nil || !strings.Contains(out, "10.42.3.0/24") || !strings.Contains(out, "fd00:2::/64") ||
		strings.Contains(out, "10.42.4.0/24") || strings.Contains(out, "203.0.113.9") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := weft(t, "peers", "nobody", "--control-socket", socket); err == nil {
		t.Error("a peer that is not there is no error")
	}
	if out, _, err := weft(t, "lease", "list", "10.0.0.2", "--control-socket", socket); err != nil ||
		strings.Contains(out, "10.42.1.0/24") || !strings.Contains(out, "10.42.2.0/24") {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = weft(t, "__complete", "peers", "--control-socket", socket, "")
	if err != nil || !strings.Contains(out, "b\t10.0.0.2 10.42.2.0/24") || strings.Contains(out, "evil") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestReleaseTakesANode(t *testing.T) {
	n := &node{}
	socket := start(t, n)
	for word, want := range map[string]string{"192.0.2.1": "10.42.1.0/24", "a": "10.42.1.0/24",
		"10.0.0.2": "10.42.2.0/24,fd00:2::/64"} {
		if _, _, err := weft(t, "lease", "release", word, "--control-socket", socket); err != nil ||
			n.asked.Subnet != want {
			t.Errorf("%s: asked %+v, %v", word, n.asked, err)
		}
	}
}

package plane

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
	"weft/tunnel"
)

// noRun is a kind of frame that no kernel has.
const noRun = 99

// TestRawNeedsRuns: where packet sockets cannot carry runs of datagrams, path socket is chosen, and stays
// when path raw is looked at again.
func TestRawNeedsRuns(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	if err := k.ProbeFrames(); err != nil {
		t.Fatalf("a kernel that has them: %v", err)
	}
	k.RunKind = noRun
	d := newDriven(t, k, "192.0.2.1", "")
	path := func() string { return d.PathName() + ": " + strings.Join(d.Notes(), "; ") }
	if got := path(); !strings.HasPrefix(got, "socket: ") || !strings.Contains(got, kernel.ErrNoRuns.Error()) {
		t.Fatal(got)
	}
	was := d.sockets[0].id
	d.sockets[0].retry = d.sockets[0].retry.Add(-retryRaw)
	d.look(t, kernel.ChangedAll)
	if got := path(); !strings.HasPrefix(got, "socket: ") || d.sockets[0].id != was {
		t.Errorf("looked at again: %s, port %d, was %d", got, d.sockets[0].id, was)
	}
	o := Options{Path: tunnel.PathRaw}
	if err := o.Obstacle(k, "eth0", []netip.Addr{addr("192.0.2.1")}); !errors.Is(err, kernel.ErrNoRuns) {
		t.Errorf("a configuration that asks for path raw: %v", err)
	}
}

package hostrules

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/lease"
)

// Where others change rules all the time, and reading them takes long, as with a kube-proxy that has thousands of services, they
// are not read with every change.
func TestInputRulesAreReadForAHundredthOfTheTime(t *testing.T) {
	n := barrierNotes{asked: time.Now().Add(-time.Second), took: time.Second, generation: Changes() + 1, found: []string{"as before"}}
	if got := n.notes(Config{}, Guard{}, lease.Set{}); !slices.Equal(got, []string{"as before"}) {
		t.Errorf("got %q", got)
	}
	n.asked = n.asked.Add(-notesShare * n.took)
	if got := n.notes(Config{}, Guard{}, lease.Set{}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// A chain that drops what nobody accepts is no fault where somebody accepts the overlay's packets, and one that accepts is where a rule drops them.
func TestForwardNotesGoByRules(t *testing.T) {
	inNamespace(t)
	c := testConfig(flavours()[0])
	c.Forward, c.Network.EnableIPv6 = false, false
	notes := func() []string {
		var kept barrierNotes
		return kept.notes(c, Guard{}, testSet("192.0.2.2"))
	}
	sh(t, "iptables-nft -P FORWARD DROP")
	if got := notes(); len(got) != 1 || !strings.Contains(got[0], "FORWARD") {
		t.Errorf("a policy: %q", got)
	}
	sh(t, "iptables-nft -A FORWARD -s 10.42.0.0/16 -j ACCEPT")
	sh(t, "iptables-nft -A FORWARD -d 10.42.0.0/16 -j ACCEPT")
	if got := notes(); len(got) > 0 {
		t.Errorf("somebody accepts: %q", got)
	}
	sh(t, "iptables-nft -P FORWARD ACCEPT")
	sh(t, "iptables-nft -I FORWARD -o flannel0 -j REJECT")
	if got := notes(); len(got) != 1 || !strings.Contains(got[0], "a rule drops them") {
		t.Errorf("a rule: %q", got)
	}
}

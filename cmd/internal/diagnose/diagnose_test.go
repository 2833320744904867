package diagnose

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/routing/probe"
)

// TestProbeNamesOnlyWhatWasObserved gives each silence of a peer, with what ICMP and the own kernel said. A
// cause is observed only where one of these two says so itself; all else is open, and each cause has a
// command.
func TestProbeNamesOnlyWhatWasObserved(t *testing.T) {
	peer, router := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.254")
	answered := time.Now().Add(-time.Minute)
	st := control.Status{Backend: control.Backend{Type: "udp", Port: 8285, MTU: 1472},
		Underlay: control.Underlay{MTU: 1500, Link: "eth0"}}
	icmp := func(says string, by netip.Addr, after time.Duration) *control.Unreachable {
		return &control.Unreachable{Says: says, By: by, Last: answered.Add(after)}
	}
	for name, c := range map[string]struct {
		silence, unsent string
		said            *control.Unreachable
		observed        bool
		codes           string
	}{
		"nothing answers": {control.SilentEverything, "", nil, false,
			"host-down network-broken peer-firewall wrong-neighbour record-old"},
		"the underlay does":  {control.SilentUnderlay, "", nil, false, "dropped weftd-frozen own-rule"},
		"it is heard":        {control.SilentHeard, "", nil, false, "dropped-one-way own-rule wrong-neighbour"},
		"its kernel answers": {control.SilentKernel, "", nil, false, "weftd-frozen peer-input not-known-there"},
		"its port is closed": {control.SilentRefused, "", nil, false, "weftd-stopped no-probes"},
		"own firewall":       {control.SilentUnsendable, probe.OwnFirewall, nil, true, "own-output"},
		"cannot send":        {control.SilentUnsendable, "no buffer", nil, false, "own-output no-source"},
		"the host rejects": {control.SilentUnderlay, "", icmp("port unreachable", peer, time.Second), false,
			"weftd-stopped peer-rejects"},
		"a router rejects": {control.SilentUnderlay, "",
			icmp("administratively prohibited", router, time.Second), true, "way-rejects"},
		"a router is at loss": {control.SilentEverything, "", icmp("host unreachable", router, time.Second), true,
			"router-route"},
		"an old rejection": {control.SilentUnderlay, "", icmp("port unreachable", peer, -time.Second), false,
			"dropped weftd-frozen own-rule"},
	} {
		p := control.Peer{Name: "b", Weft: true, Path: "socket", Address: peer, Unreachable: c.said}
		x := control.Probe{Address: netip.MustParseAddr("10.42.2.0"), Answers: "no", LastAnswer: answered,
			Silence: c.silence, Unsent: c.unsent}
		f, bad := Probe(st, p, x)
		if codes := strings.Join(f.Codes(), " "); !bad || codes != c.codes || (f.Cause != nil) != c.observed {
			t.Errorf("%s: %s, observed %v, want %s, %v", name, codes, f.Cause, c.codes, c.observed)
		}
		for _, o := range f.All() {
			if o.Command == "" || o.Where == "" || strings.Contains(o.Command, "invalid") ||
				strings.Contains(o.Command, "%!") {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if f.Fact == "" || f.Likely() == "" || f.Look() == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for _, x := range []control.Probe{{Answers: "yes"}, {Answers: "unknown"}} {
		if f, bad := Probe(st, control.Peer{}, x); bad {
			t.Errorf("%s: %+v", x.Answers, f)
		}
	}
	// The MTU that passes is that of the underlay's packets, and so is the remedy.
	f, _ := Probe(st, control.Peer{Address: peer}, control.Probe{Answers: "yes", LargeLost: true, PathMTU: 1372})
	if !slices.Contains(f.Codes(), "path-mtu") || !strings.Contains(f.Look(), "-s 1372 192.0.2.2") {
		t.Errorf("%+v", f)
	}
}

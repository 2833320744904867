package diagnose

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
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
			"host-down network-broken peer-firewall wrong-neighbour no-way-back rp-filter record-old"},
		"the underlay does": {control.SilentUnderlay, "", nil, false,
			"dropped weftd-frozen own-rule not-known-there"},
		"it is heard":        {control.SilentHeard, "", nil, false, "dropped-one-way own-rule wrong-neighbour no-route"},
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
			"dropped weftd-frozen own-rule not-known-there"},
	} {
		p := control.Peer{Name: "b", Weft: true, Path: "socket", Address: peer, Unreachable: c.said}
		x := control.Probe{Address: netip.MustParseAddr("10.42.2.0"), Answers: "no", LastAnswer: answered,
			Silence: c.silence, Unsent: c.unsent}
		f, bad := Probe(st, p, x, Neighbour{})
		if codes := strings.Join(f.Codes(), " "); !bad || codes != c.codes || f.Observed() != c.observed {
			t.Errorf("%s: %s, observed %v, want %s, %v", name, codes, f.Causes, c.codes, c.observed)
		}
		for _, o := range f.Causes {
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
		if f, bad := Probe(st, control.Peer{}, x, Neighbour{}); bad {
			t.Errorf("%s: %+v", x.Answers, f)
		}
	}
	// The MTU that passes is that of the underlay's packets, and so is the remedy.
	f, _ := Probe(st, control.Peer{Address: peer}, control.Probe{Answers: "yes", LargeLost: true, PathMTU: 1372},
		Neighbour{})
	if !slices.Contains(f.Codes(), "path-mtu") || !strings.Contains(f.Look(), "-s 1372 192.0.2.2") {
		t.Errorf("%+v", f)
	}
}

// TestNeighbourShowsTheCause gives a silent peer with what the kernel and the link said of its next hop.
func TestNeighbourShowsTheCause(t *testing.T) {
	peer := netip.MustParseAddr("192.0.2.2")
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	near := Neighbour{At: peer, Link: "eth0", Asked: true}
	with := func(edit func(*Neighbour)) Neighbour { n := near; edit(&n); return n }
	for name, c := range map[string]struct {
		n             Neighbour
		observed      bool
		codes, remedy string
	}{
		"nobody answers ARP": {near, false, "host-down address-changed network-broken", ""},
		"its host answers ARP": {with(func(n *Neighbour) {
			n.Entry, n.Answers = mac(1), []net.HardwareAddr{mac(1)}
		}),
			false, "peer-firewall no-way-back rp-filter record-old", ""},
		"a wrong address is pinned": {with(func(n *Neighbour) {
			n.Entry, n.Pinned, n.Answers = mac(9), true, []net.HardwareAddr{mac(1)}
		}), true, "wrong-neighbour", "ip neigh del 192.0.2.2 dev eth0"},
		"a pinned address that answers": {with(func(n *Neighbour) {
			n.Entry, n.Pinned, n.Answers = mac(1), true, []net.HardwareAddr{mac(1)}
		}), false, "peer-firewall no-way-back rp-filter record-old", ""},
		"two hosts answer": {with(func(n *Neighbour) { n.Answers = []net.HardwareAddr{mac(1), mac(2)} }), true,
			"address-twice", ""},
		"a route blocks": {Neighbour{Err: syscall.EINVAL}, true, "no-route", ""},
		"nobody looked": {Neighbour{}, false,
			"host-down network-broken peer-firewall wrong-neighbour no-way-back rp-filter record-old", ""},
	} {
		f := Of(Path{Peer: "b", Under: peer, Link: "eth0", Neighbour: c.n},
			Fact{Layer: Underlay, State: Silent, To: peer})
		if codes := strings.Join(f.Codes(), " "); codes != c.codes || f.Observed() != c.observed ||
			c.observed && f.Causes[0].Remedy != c.remedy {
			t.Errorf("%s: %s, observed %+v; want %s, %v, %q", name, codes, f.Causes, c.codes, c.observed, c.remedy)
		}
	}
}

// TestCommandsAreFilledIn has every cause of a way of which all is known, and of one of which nothing is.
func TestCommandsAreFilledIn(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.2")
	known := Path{Peer: "b", Under: a, UnderFrom: a, Link: "eth0", UDPPort: 8285, From: a, Gateway: a, Pod: a}
	for code := range templates {
		for _, p := range []Path{known, {Peer: "b"}} {
			c := p.cause(code, p.fill(Fact{To: a, MTU: 1400}))
			if text := c.Cause + c.Command + c.Tells; strings.ContainsAny(text, "{}") || strings.Contains(text, "invalid") ||
				c.Command == "" || c.Tells == "" {
				t.Errorf("%s: %+v", code, c)
			}
		}
	}
	behind := known
	behind.Neighbour.At = netip.MustParseAddr("192.0.2.254")
	for want, c := range map[string]Cause{
		"ip neigh show 192.0.2.254; ip route get 192.0.2.2": behind.cause("wrong-neighbour", behind.fill(Fact{To: a})),
		// weftd's questions go to its own port, which the kernel's vxlan does not have
		"systemctl status weftd; journalctl -u weftd -n 50; ss -lunp sport = :8286": known.cause("weftd-stopped",
			known.fill(Fact{Layer: Daemon})),
	} {
		if c.Command != want {
			t.Errorf("%s: %q", c.Code, c.Command)
		}
	}
	for want, code := range map[string]Code{
		"ping -c1 -M do -s 1372 192.0.2.2; ping -c1 -M do -s 1373 192.0.2.2; tracepath -n 192.0.2.2": "path-mtu",
		"tcpdump -ni any udp dst port 8285 and src host 192.0.2.2; nft list ruleset":                 "dropped-one-way",
	} {
		if got := known.cause(code, known.fill(Fact{To: a, MTU: 1400})).Command; got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}

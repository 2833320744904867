package plane

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/tunnel/port"
)

var (
	pfx, addr = netip.MustParsePrefix, netip.MustParseAddr

	macUs   = encap.MAC{2, 0, 0, 0, 0, 1}
	macPeer = encap.MAC{2, 0, 0, 0, 0, 2}
	macGate = encap.MAC{2, 0, 0, 0, 0, 9}
	eth     = kernel.EtherInfo{Name: "eth0", Index: 7, MTU: 1500, MAC: macUs}
)

// TestNextHops joins routes and neighbours: two peers behind one gateway, one on the link,
// and those that frames do not reach.
func TestNextHops(t *testing.T) {
	r := newHopRoutes(0)
	for dst, a := range map[string]kernel.Answer{
		"192.0.2.2":    {Kind: kernel.RouteUnicast, Link: 7},
		"198.51.100.1": {Kind: kernel.RouteUnicast, Link: 7, Gateway: addr("192.0.2.9")},
		"198.51.100.2": {Kind: kernel.RouteUnicast, Link: 7, Gateway: addr("192.0.2.9")},
		"2001:db8::2":  {Kind: kernel.RouteUnicast, Link: 7},
		"203.0.113.1":  {Kind: kernel.RouteUnicast, Link: 8},
		"203.0.113.2":  {Err: unix.ENETUNREACH},
		"192.0.2.3":    {Kind: kernel.RouteUnicast, Link: 7}, // unresolved
		"192.0.2.4":    {Kind: kernel.RouteUnicast, Link: 7}, // claims our MAC
		"192.0.2.5":    {Err: kernel.ErrNoAnswer},
	} {
		r.add(addr(dst), a, eth)
	}
	macs := neighbourMACs([]kernel.Neighbour{
		{Addr: addr("192.0.2.2"), MAC: macPeer, State: kernel.NudStale},
		{Addr: addr("192.0.2.9"), MAC: macGate, State: kernel.NudReachable},
		{Addr: addr("2001:db8::2"), MAC: macPeer, State: kernel.NudPermanent},
		{Addr: addr("192.0.2.3"), MAC: macPeer, State: unix.NUD_FAILED},
		{Addr: addr("192.0.2.4"), MAC: macUs, State: kernel.NudReachable},
		{Addr: addr("192.0.2.200"), MAC: macPeer, State: kernel.NudReachable},
	}, r.wanted)
	if len(macs) != 4 {
		t.Errorf("neighbours kept: %v", macs)
	}
	want := map[netip.Addr]port.NextHop{
		addr("192.0.2.2"):    {Local: macUs, Remote: macPeer},
		addr("198.51.100.1"): {Local: macUs, Remote: macGate},
		addr("198.51.100.2"): {Local: macUs, Remote: macGate},
		addr("2001:db8::2"):  {Local: macUs, Remote: macPeer},
	}
	if got := nextHops(r, macs, macUs); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !maps.Equal(r.others, map[int]bool{8: true}) {
		t.Errorf("other links: %v", r.others)
	}
}

// TestSilentNeighbours: who failed is silent until it answers, while it is asked for anew too.
func TestSilentNeighbours(t *testing.T) {
	a, b, c := addr("192.0.2.2"), addr("192.0.2.3"), addr("192.0.2.4")
	wanted := map[netip.Addr]bool{a: true, b: true}
	var silent map[netip.Addr]bool
	for _, step := range []struct {
		name string
		have []kernel.Neighbour
		want []netip.Addr
	}{
		{"asked for the first time", []kernel.Neighbour{{Addr: a, MAC: encap.MAC{}, State: unix.NUD_INCOMPLETE}},
			nil},
		{"failed, and a stranger", []kernel.Neighbour{{Addr: a, MAC: encap.MAC{}, State: kernel.NudFailed},
			{Addr: c, MAC: encap.MAC{}, State: kernel.NudFailed}}, []netip.Addr{a}},
		{"asked for again", []kernel.Neighbour{{Addr: a, MAC: encap.MAC{}, State: unix.NUD_INCOMPLETE},
			{Addr: b, MAC: macPeer, State: kernel.NudFailed}}, []netip.Addr{a, b}},
		{"forgotten", nil, []netip.Addr{a, b}},
		{"answers", []kernel.Neighbour{{Addr: a, MAC: macPeer, State: kernel.NudReachable}}, []netip.Addr{b}},
		{"heard of", []kernel.Neighbour{{Addr: a, MAC: macPeer, State: kernel.NudStale},
			{Addr: b, MAC: macPeer, State: kernel.NudStale}}, nil},
		{"failed again", []kernel.Neighbour{{Addr: a, MAC: macPeer, State: kernel.NudFailed}}, []netip.Addr{a}},
	} {
		silent = silentNeighbours(silent, step.have, wanted)
		if got := slices.SortedFunc(maps.Keys(silent), netip.Addr.Compare); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
	if got := silentNeighbours(silent, nil, map[netip.Addr]bool{b: true}); len(got) != 0 {
		t.Errorf("nobody's next hop any more: %v", got)
	}
	r := hopRoutes{via: map[netip.Addr]netip.Addr{a: a, addr("198.51.100.1"): a, b: b, addr("203.0.113.1"): {}}}
	if got := r.undeliverable(silent, true); !maps.Equal(got,
		map[netip.Addr]bool{a: true, addr("198.51.100.1"): true}) {
		t.Errorf("behind a silent one: %v", got)
	}
	if got := r.undeliverable(nil, false); len(got) != 3 {
		t.Errorf("without a carrier: %v", got)
	}
	if got := r.undeliverable(nil, true); len(got) != 0 {
		t.Errorf("all well: %v", got)
	}
}

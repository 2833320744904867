package kernel_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/test/netns"
)

var (
	pfx, addr = netip.MustParsePrefix, netip.MustParseAddr

	macUs   = encap.MAC{2, 0, 0, 0, 0, 1}
	macPeer = encap.MAC{2, 0, 0, 0, 0, 2}
	macGate = encap.MAC{2, 0, 0, 0, 0, 9}
	eth     = kernel.EtherInfo{Name: "eth0", Index: 7, MTU: 1500, MAC: macUs}
)

func TestAnswerNeighbour(t *testing.T) {
	dst := addr("192.0.2.2")
	for _, c := range []struct {
		name string
		a    kernel.Answer
		via  string // "" if frames cannot be sent
		why  string
	}{
		{"on the link", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7}, "192.0.2.2", ""},
		{"by a gateway", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, Gateway: addr("192.0.2.9")},
			"192.0.2.9", ""},
		{"by an IPv6 gateway", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, Gateway: addr("fe80::9")},
			"fe80::9", ""},
		{"by another link", kernel.Answer{Kind: kernel.RouteUnicast, Link: 8}, "", "eth0"},
		{"ours", kernel.Answer{Kind: unix.RTN_LOCAL, Link: 1}, "", "type"},
		{"blackhole", kernel.Answer{Kind: unix.RTN_BLACKHOLE, Link: 7}, "", "type"},
		{"a smaller MTU", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, MTU: 1400}, "", "MTU 1400"},
		{"the link's MTU", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, MTU: 1500}, "192.0.2.2", ""},
		{"a larger MTU", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, MTU: 9000}, "192.0.2.2", ""},
		{"encapsulated", kernel.Answer{Kind: kernel.RouteUnicast, Link: 7, Encap: true}, "", "encapsulates"},
		{"unreachable", kernel.Answer{Err: unix.EHOSTUNREACH}, "", unix.EHOSTUNREACH.Error()},
		{"nothing at all", kernel.Answer{}, "", "type 0"},
	} {
		via, err := c.a.Neighbour(dst, eth)
		if c.via != "" && (err != nil || via != addr(c.via)) ||
			c.via == "" && (err == nil || via.IsValid() || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, %v", c.name, via, err)
		}
	}
}

func TestNeighbourUsable(t *testing.T) {
	for _, c := range []struct {
		name  string
		state uint16
		mac   encap.MAC
		want  bool
	}{
		{"reachable", unix.NUD_REACHABLE, macPeer, true},
		{"stale", unix.NUD_STALE, macPeer, true},
		{"delay", unix.NUD_DELAY, macPeer, true},
		{"probe", unix.NUD_PROBE, macPeer, true},
		{"permanent", unix.NUD_PERMANENT, macPeer, true},
		{"incomplete", unix.NUD_INCOMPLETE, encap.MAC{}, false},
		{"failed", unix.NUD_FAILED, macPeer, false},
		{"noarp", unix.NUD_NOARP, macPeer, false},
		{"none", unix.NUD_NONE, macPeer, false},
		{"no address", unix.NUD_REACHABLE, encap.MAC{}, false},
		{"broadcast", unix.NUD_PERMANENT, encap.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, false},
		{"multicast", unix.NUD_PERMANENT, encap.MAC{1, 0, 0x5e, 0, 0, 1}, false},
	} {
		if got := (kernel.Neighbour{State: c.state, MAC: c.mac}).Usable(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestHopInterest is which notifications have the next hops looked at: those that say
// nothing new about a neighbour do not.
func TestHopInterest(t *testing.T) {
	i := kernel.Interest{Hops: kernel.HopInterest{Link: 7, Others: map[int]bool{8: true},
		Peers:  []netip.Addr{addr("192.0.2.2")},
		MACs:   map[netip.Addr]encap.MAC{addr("192.0.2.2"): macPeer, addr("192.0.2.3"): {}, addr("192.0.2.5"): {}},
		Silent: map[netip.Addr]bool{addr("192.0.2.5"): true}}}
	index := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	neigh := func(link int32, dst string, mac encap.MAC, state uint16) []byte {
		b := append([]byte{unix.AF_INET, 0, 0, 0}, index(link)...)
		b = append(binary.NativeEndian.AppendUint16(b, state), 0, 0)
		b = append(b, rtattr(unix.NDA_DST, addr(dst).AsSlice()...)...)
		return append(b, rtattr(unix.NDA_LLADDR, mac[:]...)...)
	}
	route := func(family, bits byte, dst ...byte) []byte {
		b := make([]byte, unix.SizeofRtMsg)
		b[0], b[1], b[4] = family, bits, 200 // any table
		if dst != nil {
			b = append(b, rtattr(unix.RTA_DST, dst...)...)
		}
		return b
	}
	link := func(n int32) []byte { return append(append(make([]byte, 4), index(n)...), make([]byte, 8)...) }
	for _, c := range []struct {
		name string
		kind uint16
		data []byte
		want kernel.Change
	}{
		{"confirmed again", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.2", macPeer, kernel.NudReachable), 0},
		{"stale", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.2", macPeer, kernel.NudStale), 0},
		{"another MAC", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.2", macGate, kernel.NudReachable),
			kernel.ChangedNeighbours},
		{"failed", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.2", macPeer, unix.NUD_FAILED), kernel.ChangedNeighbours},
		{"failed, and had no MAC", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.3", encap.MAC{}, kernel.NudFailed),
			kernel.ChangedNeighbours},
		{"failed as before", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.5", encap.MAC{}, kernel.NudFailed), 0},
		{"deleted", unix.RTM_DELNEIGH, neigh(7, "192.0.2.2", macPeer, kernel.NudStale), kernel.ChangedNeighbours},
		{"resolved", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.3", macPeer, kernel.NudReachable),
			kernel.ChangedNeighbours},
		{"still not resolved", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.3", encap.MAC{}, unix.NUD_INCOMPLETE), 0},
		{"nobody's neighbour", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.4", macPeer, kernel.NudReachable), 0},
		{"another link's", unix.RTM_NEWNEIGH, neigh(8, "192.0.2.2", macGate, kernel.NudReachable), 0},
		{"a truncated one", unix.RTM_NEWNEIGH, neigh(7, "192.0.2.2", macGate, kernel.NudReachable)[:11], 0},
		{"a route to a peer", unix.RTM_NEWROUTE, route(unix.AF_INET, 24, 192, 0, 2, 0), kernel.ChangedRoutes},
		{"the default route", unix.RTM_DELROUTE, route(unix.AF_INET, 0), kernel.ChangedRoutes},
		{"another route", unix.RTM_NEWROUTE, route(unix.AF_INET, 24, 192, 0, 3, 0), 0},
		{"IPv6's default route", unix.RTM_NEWROUTE, route(unix.AF_INET6, 0), 0},
		{"a route with nonsense for a length", unix.RTM_NEWROUTE, route(unix.AF_INET, 33, 192, 0, 2, 0), 0},
		{"a rule", unix.RTM_NEWRULE, nil, kernel.ChangedRoutes},
		{"a next hop object", unix.RTM_DELNEXTHOP, nil, kernel.ChangedRoutes},
		{"the underlay's link", unix.RTM_NEWLINK, link(7), kernel.ChangedRoutes},
		{"a link that peers are routed to", unix.RTM_DELLINK, link(8), kernel.ChangedRoutes},
		{"another link", unix.RTM_DELLINK, link(9), 0},
	} {
		if got := i.Concerns(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: c.kind}, Data: c.data}); got != c.want {
			t.Errorf("%s: %b, want %b", c.name, got, c.want)
		}
		none := kernel.Interest{}
		if got := none.Concerns(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: c.kind}, Data: c.data}); got != 0 {
			t.Errorf("%s, without path raw: %b", c.name, got)
		}
	}
}

func FuzzHopMessages(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWROUTE), append(make([]byte, unix.SizeofRtMsg),
		rtattr(unix.RTA_GATEWAY, 192, 0, 2, 9)...))
	f.Add(uint16(unix.RTM_NEWROUTE), append(make([]byte, unix.SizeofRtMsg),
		rtattr(unix.RTA_METRICS, rtattr(unix.RTAX_MTU, 0, 5, 0, 0)...)...))
	f.Add(uint16(unix.RTM_NEWROUTE), append(make([]byte, unix.SizeofRtMsg), rtattr(unix.RTA_VIA, 10, 0, 1)...))
	f.Add(uint16(unix.NLMSG_ERROR), []byte{0, 0, 0, 0x80})
	f.Add(uint16(unix.RTM_NEWNEIGH), append([]byte{2, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0},
		rtattr(unix.NDA_DST, 192, 0, 2, 2)...))
	f.Add(uint16(unix.RTM_NEWLINK), append(make([]byte, unix.SizeofIfInfomsg), 3, 0, 3, 0))
	f.Add(uint16(unix.RTM_NEWADDR), []byte{})
	i := kernel.Interest{Entries: true, Filters: true, Networks: []netip.Prefix{pfx("10.5.0.0/16")},
		Hops: kernel.HopInterest{Link: 7, Peers: []netip.Addr{addr("192.0.2.2")}}}
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: b}
		a := kernel.ParseAnswer(m)
		if via, err := a.Neighbour(addr("192.0.2.2"), eth); err == nil && !via.IsValid() {
			t.Errorf("%+v: no neighbour and no error", a)
		}
		if n, ok := kernel.ParseNeighbour(b, 7); ok && !n.Addr.IsValid() {
			t.Error("a neighbour without an address")
		}
		i.Concerns(m)
	})
}

func TestRoutesTo(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	netns.IP(t, "-6 addr add 2001:db8::1/64 dev eth0 nodad")
	netns.IP(t, "neigh add 2001:db8::9 lladdr %v dev eth0", macGate)
	netns.IP(t, "route add 198.51.100.0/24 via inet6 2001:db8::9 dev eth0")
	netns.IP(t, "route add 203.0.113.0/24 via 192.0.2.9 mtu 1300")
	netns.IP(t, "route add prohibit 203.0.114.0/24")
	d, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	dsts := []netip.Addr{addr("192.0.2.2"), addr("198.51.100.1"), addr("203.0.113.1"), addr("203.0.114.1"),
		addr("8.8.8.8"), addr("192.0.2.1")}
	got, err := k.RoutesTo(dsts, netip.MustParseAddrPort("192.0.2.1:8285"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []kernel.Answer{
		{Kind: kernel.RouteUnicast, Link: d.Index},
		{Kind: kernel.RouteUnicast, Link: d.Index, Gateway: addr("2001:db8::9")},
		{Kind: kernel.RouteUnicast, Link: d.Index, Gateway: addr("192.0.2.9"), MTU: 1300},
	} {
		if got[i] != want {
			t.Errorf("%v: %+v, want %+v", dsts[i], got[i], want)
		}
	}
	for i := 3; i < 5; i++ {
		if got[i].Err == nil || errors.Is(got[i].Err, kernel.ErrNoAnswer) {
			t.Errorf("%v: %+v, want an error", dsts[i], got[i])
		}
	}
	if got[5].Kind == kernel.RouteUnicast {
		t.Errorf("%v: %+v, want a local route", dsts[5], got[5])
	}
	if got, err := k.RoutesTo(nil, netip.AddrPort{}); err != nil || len(got) != 0 {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
}

// TestAskForNeighbour: the kernel asks the link for an address without a packet.
func TestAskForNeighbour(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	d, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"192.0.2.77", "2001:db8::77"} {
		if err := k.Ask(d.Index, addr(a)); err != nil {
			t.Fatal(err)
		}
		ns, err := k.Neighbours(d.Index)
		if err != nil {
			t.Fatal(err)
		}
		asked := false
		for _, n := range ns {
			asked = asked || n.Addr == addr(a) && n.State&(unix.NUD_INCOMPLETE|kernel.NudFailed) != 0
		}
		if !asked {
			t.Errorf("%s is not asked for: %v", a, ns)
		}
	}
}

package onlink

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestLook asks a link with one other host: for that host, for nobody, for this host's own address, behind a
// gateway, and for an address that a route blocks. Then the other host has this host's address, too.
func TestLook(t *testing.T) {
	netns.Enter(t)
	far := netns.New(t, "far")
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	link, err := netlink.LinkByName("eth0-far")
	if err == nil {
		err = netlink.LinkSetNsFd(link, far.FD())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := far.Do(func() error {
		var faults []error
		for _, a := range []string{"192.0.2.2/24", "192.0.2.7/24"} {
			addr, err := netlink.ParseAddr(a)
			faults = append(faults, err, netlink.AddrAdd(link, addr))
		}
		return errors.Join(append(faults, netlink.LinkSetUp(link))...)
	}); err != nil {
		t.Fatal(err)
	}
	const wrong = "02:00:00:00:00:99"
	netns.IP(t, "neigh replace 192.0.2.7 lladdr %s dev eth0 nud permanent", wrong)
	netns.IP(t, "route add 198.51.100.0/24 via 192.0.2.2")
	netns.IP(t, "route add blackhole 203.0.113.0/24")

	addr := netip.MustParseAddr
	peer, pinned, nobody, own, behind, blocked := addr("192.0.2.2"), addr("192.0.2.7"), addr("192.0.2.66"),
		addr("192.0.2.1"), addr("198.51.100.9"), addr("203.0.113.5")
	got := Look(t.Context(), []netip.Addr{peer, pinned, nobody, own, behind, blocked, addr("2001:db8::1")})
	mac := link.Attrs().HardwareAddr.String()
	for a, want := range map[netip.Addr]struct {
		at      netip.Addr
		answers int
	}{peer: {peer, 1}, pinned: {pinned, 1}, nobody: {nobody, 0}, own: {own, 0}, behind: {peer, 1}} {
		n := got[a]
		if n.Err != nil || !n.Asked || n.At != want.at || n.Link != "eth0" || len(n.Answers) != want.answers ||
			want.answers > 0 && n.Answers[0].String() != mac || n.Own != (a == own) || n.Misled() != (a == pinned) {
			t.Errorf("%v: %+v, want %+v with %s", a, n, want, mac)
		}
	}
	if n := got[pinned]; !n.Pinned || n.Entry.String() != wrong {
		t.Errorf("pinned: %+v", n)
	}
	if n := got[blocked]; !errors.Is(n.Err, unix.EINVAL) {
		t.Errorf("blocked: %+v", n)
	}
	if len(got) != 6 {
		t.Errorf("an IPv6 address has no ARP: %v", got)
	}

	if err := far.Do(func() error { // now it has an address of ours, too
		addr, err := netlink.ParseAddr("192.0.2.1/24")
		return errors.Join(err, netlink.AddrAdd(link, addr))
	}); err != nil {
		t.Fatal(err)
	}
	if n := Look(t.Context(), []netip.Addr{own})[own]; !n.Several() || !n.Own {
		t.Errorf("a second host has our address: %+v", n)
	}
}

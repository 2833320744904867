package tunnel_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/port"
)

// openRaw opens path raw on eth0 of the current namespace, with tunnel GSO. What the
// ingress filter does on a real host a filter on the UDP socket does here: it takes nothing.
func openRaw(o port.UDPOptions) (*port.Raw, error) {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return nil, err
	}
	r, err := port.OpenRaw(port.RawOptions{UDPOptions: o, Link: link.Attrs().Index, TAP: "weft-tx%d"})
	if err != nil {
		return nil, err
	}
	deaf := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(r.Queues()[1].PollFD(), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &deaf[0]})
	if r.TAP() != "" {
		err = errors.Join(err, redirect(r.TAP(), link.Attrs().Index))
		r.UseTAP(true)
	}
	return r, errors.Join(err, r.Listen())
}

// redirect makes all that is written to a TAP leave by the link to.
func redirect(tap string, to int) error {
	l, err := netlink.LinkByName(tap)
	if err != nil {
		return err
	}
	clsact := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	all := &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS,
			Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{netlink.NewMirredAction(to)},
	}
	return errors.Join(netlink.LinkSetMTU(l, 65521), netlink.LinkSetUp(l), netlink.QdiscAdd(clsact),
		netlink.FilterAdd(all))
}

// aim tells the raw ends of an overlay the next hop to the other.
func (o *overlay) aim(t testing.TB, outers ...string) {
	t.Helper()
	var macs [2]encap.MAC
	for i, h := range o.hosts {
		h.Do(t, func() error {
			l, err := netlink.LinkByName("eth0")
			if err == nil {
				macs[i] = encap.MAC(l.Attrs().HardwareAddr)
			}
			return err
		})
	}
	for i, r := range o.raws {
		if r != nil {
			r.SetNextHops(map[netip.Addr]port.NextHop{addr(outers[1-i]): {Local: macs[i], Remote: macs[1-i]}})
		}
	}
}

// TestTAPDeleted takes the TAP away under traffic: superpackets are cut until the port is made
// again, and none is lost.
func TestTAPDeleted(t *testing.T) {
	t.Parallel()
	o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{{raw: true}, {raw: true}})
	o.carries(t, "10.1.2.0")
	if o.raws[0].TAP() == "" {
		t.Fatal("no TAP: this test needs tunnel GSO (Linux 6.17)")
	}
	o.hosts[0].Do(t, func() error {
		l, err := netlink.LinkByName(o.raws[0].TAP())
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	o.carries(t, "10.1.2.0")
	for i, e := range o.engines {
		if n := e.Stats().Egress.Drops[port.DropClosed]; n > 0 {
			t.Errorf("engine %d lost %d packets to a device that is gone", i, n)
		}
	}
}

package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
)

const (
	vxlanDev      = "flannel.1"
	vxlanID       = 1
	vxlanPort     = encap.PortVXLAN
	vxlanOverhead = 50 // bytes: outer IPv4 20, UDP 8, VXLAN 8, Ethernet 14
)

// startByHand sets up what the kernel or a wireguard-go needs to carry the pods' packets, without weftd.
func (l *Lab) startByHand(ctx context.Context, nodes []*Node) error {
	start := time.Now()
	for _, n := range nodes {
		var err error
		if n.Net, err = l.podNetByHand(n.Index); err != nil {
			return n.Fault(err)
		}
		if err := n.attachPods(); err != nil {
			return n.Fault(err)
		}
		if l.Spec.Driver == KernelVXLAN {
			if err := n.addVXLAN(); err != nil {
				return n.Fault(err)
			}
		}
		if l.Spec.Driver == WireGuardGo {
			if err := n.startWireGuard(ctx); err != nil {
				return n.Fault(err)
			}
		}
	}
	for _, from := range l.Nodes() {
		for _, to := range l.Nodes() {
			if from == to {
				continue
			}
			if err := l.joinByHand(from, to); err != nil {
				return from.Fault(err)
			}
		}
	}
	l.progress("%s on %d nodes (%s)", l.Spec.Driver, len(l.Nodes()), since(start))
	return nil
}

// podNetByHand gives node N the Nth subnet of each network: a /24 and a /64, which are flannel's defaults.
func (l *Lab) podNetByHand(index int) (PodNet, error) {
	p := PodNet{MTU: l.Spec.MTU}
	switch l.Spec.Driver {
	case KernelVXLAN:
		p.MTU -= vxlanOverhead
	case WireGuardGo:
		p.MTU -= wireGuardOverhead
	case Weftd, KernelHostGW, Bare:
	}
	var err error
	if n := l.overlay.Network; n.IsValid() {
		if p.V4, err = nthSubnet(n, 24, index); err != nil {
			return p, err
		}
	}
	if n := l.overlay.IPv6Network; n.IsValid() {
		p.V6, err = nthSubnet(n, 64, index)
	}
	return p, err
}

// nthSubnet returns the address of the first host in the nth prefix of that many bits in network.
func nthSubnet(network netip.Prefix, bits, n int) (netip.Prefix, error) {
	b := network.Masked().Addr().AsSlice()
	for i := bits/8 - 1; i >= 0 && n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	base, _ := netip.AddrFromSlice(b)
	if n > 0 || !network.Contains(base) || network.Bits() > bits {
		return netip.Prefix{}, fmt.Errorf("network %s has too few /%d for the nodes", network, bits)
	}
	return netip.PrefixFrom(base.Next(), bits), nil
}

// joinByHand lets from reach to's pods. To call it again changes nothing.
func (l *Lab) joinByHand(from, to *Node) error {
	if l.Spec.Driver == WireGuardGo {
		return from.addWireGuardPeer(to)
	}
	for _, g := range to.Net.gateways() {
		via := to.Underlay4
		if g.Addr().Is6() {
			via = to.Underlay6
		}
		if l.Spec.Driver == KernelHostGW {
			if err := from.route(g.Masked(), via, underlayDev, 0); err != nil {
				return err
			}
			continue
		}
		base := g.Masked().Addr()
		if err := from.addVXLANPeer(base, to); err != nil {
			return err
		}
		if err := from.route(g.Masked(), base, vxlanDev, int(unix.RTNH_F_ONLINK)); err != nil {
			return err
		}
	}
	return nil
}

// vtepMAC is a locally administered address that contains the node's index.
func (n *Node) vtepMAC() net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, 0, 0, byte(n.Index >> 8), byte(n.Index)}
}

func (n *Node) addVXLAN() error {
	under, err := n.link(underlayDev)
	if err != nil {
		return err
	}
	dev := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: vxlanDev, MTU: n.Net.MTU, HardwareAddr: n.vtepMAC()},
		VxlanId:   vxlanID, VtepDevIndex: under.Attrs().Index, SrcAddr: n.Underlay4.AsSlice(), Port: vxlanPort,
	}
	if err := n.NS.Netlink().LinkAdd(dev); err != nil {
		return fmt.Errorf("add %s: %w (is the vxlan module there?)", vxlanDev, err)
	}
	var own []netip.Prefix
	for _, g := range n.Net.gateways() {
		base := g.Masked().Addr()
		own = append(own, netip.PrefixFrom(base, base.BitLen()))
	}
	return n.configure(vxlanDev, own...)
}

// addVXLANPeer tells the kernel that hop has to's MAC, and that frames for this MAC go to to's underlay
// address.
func (n *Node) addVXLANPeer(hop netip.Addr, to *Node) error {
	dev, err := n.link(vxlanDev)
	if err != nil {
		return err
	}
	index := dev.Attrs().Index
	neigh := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: hop.AsSlice(),
		HardwareAddr: to.vtepMAC()}
	if err := n.NS.Netlink().NeighSet(neigh); err != nil {
		return fmt.Errorf("neighbour %s: %w", hop, err)
	}
	fdb := &netlink.Neigh{
		LinkIndex: index, State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
		IP: to.Underlay4.AsSlice(), HardwareAddr: to.vtepMAC(),
	}
	if err := n.NS.Netlink().NeighSet(fdb); err != nil {
		return fmt.Errorf("fdb %s: %w", to.vtepMAC(), err)
	}
	return nil
}

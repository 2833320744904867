package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
	"weft/tunnel/port"
)

// routeFromPod does what a router does with a pod's packet before the lookup: it decrements the TTL, or drops
// the packet.
func (w *decider) routeFromPod(p *port.Packet, in *encap.Inner) drop {
	if isMulticast(in.Dst) {
		// any kernel sends these to its link, from an address of the link: this is no forgery
		return dropFor(port.DropMulticast)
	}
	if !slices.Contains(w.from.addrs, in.Src) {
		return dropFor(port.DropForeignSource)
	}
	if w.table.isOwn(in.Dst) && in.TTL > 0 {
		return drop{} // addressed to the router itself
	}
	if !encap.DecrementTTL(p.Bytes()) {
		return drop{port.Dropped(port.DropTTL), encap.ICMPTimeExceeded}
	}
	in.TTL--
	p.HeaderChanged()
	return drop{}
}

// isHostLinkLocal reports whether a pod's packet to a goes to a link of the host, where the host or its cloud
// has services: metadata, a node-local DNS cache. With a bridge it would go there too. IPv6 link-local
// addresses need a link, and a pod shares none with the host.
func (w *decider) isHostLinkLocal(a netip.Addr) bool {
	return w.from.pod != nil && w.set.host != nil && a.Is4() && a.IsLinkLocalUnicast()
}

// decideForPod decides about a packet to a local pod. size is that of its largest segment, in bytes.
func decideForPod(to *attachedPort, p *port.Packet, in *encap.Inner, size int) decision {
	d := decision{to: to}
	switch limit := int(to.pod.mtu.Load()); {
	case to.lost.Load():
		d.drop = drop{port.Dropped(port.DropClosed), encap.ICMPNoRoute}
	case isRedirect(p.Bytes(), in):
		d.drop = dropFor(port.DropUnsupported)
	case limit > 0 && size > limit:
		d.fit(p, in, limit)
	}
	return d
}

// isRedirect reports whether the packet is an ICMP redirect. A pod has only one first hop. The host's kernel
// sends redirects for packets that it translates and routes back into its TUN. A redirect from anyone else is
// forged.
func isRedirect(b []byte, in *encap.Inner) bool {
	switch {
	case in.Proto != encap.ProtoICMP && in.Proto != encap.ProtoICMPv6 || in.FragOffset != 0 || in.L4 == 0 ||
		in.L4 >= len(b):
		return false
	case in.Version == 4:
		return in.Proto == encap.ProtoICMP && b[in.L4] == 5
	}
	return in.Proto == encap.ProtoICMPv6 && b[in.L4] == 137
}

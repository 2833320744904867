package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
	"weft/tunnel/port"
)

// leavePod is what a router does with a packet that a pod sends, before it looks where it goes: it drops it,
// or takes a hop off its TTL.
func (w *decider) leavePod(p *port.Packet, in *encap.Inner) drop {
	if isMulticast(in.Dst) {
		// said to its link by any kernel, from an address of the link: no forgery
		return dropFor(port.DropMulticast)
	}
	if !slices.Contains(w.from.addrs, in.Src) {
		return dropFor(port.DropForeignSource)
	}
	if w.table.isOwn(in.Dst) && in.TTL > 0 {
		return drop{} // to the router itself
	}
	if !encap.DecrementTTL(p.Bytes()) {
		return drop{port.Dropped(port.DropTTL), encap.ICMPTimeExceeded}
	}
	in.TTL--
	p.Changed()
	return drop{}
}

// linkOfHost says whether a pod's packet to a is for a link of the host, on which it has services of its own:
// a cloud's metadata, a DNS cache of the node. By a bridge it would go there too. Link-local addresses of
// IPv6 need a link, which a pod does not share.
func (w *decider) linkOfHost(a netip.Addr) bool {
	return w.from.pod != nil && w.set.host != nil && a.Is4() && a.IsLinkLocalUnicast()
}

// decideForPod decides about p for a pod of this node. No packet of it is larger than size bytes.
func decideForPod(to *attached, p *port.Packet, in *encap.Inner, size int) decision {
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

// isRedirect says whether the packet tells its receiver of another first hop. A pod has one way and no other.
// The host's kernel sends it redirects all the same, for packets that it has from its TUN and routes back
// into it once it has translated them; and from anybody else a redirect is a forgery.
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

package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
)

// leavePod is what a router does with a packet that a pod sends. ok is false if it is dropped for reason r.
func (w *worker) leavePod(p *Packet, in *encap.Inner) (r DropReason, ok bool) {
	if isMulticast(in.Dst) {
		return DropMulticast, false // said to its link by any kernel, from an address of the link: no forgery
	}
	if !slices.Contains(w.from.addrs, in.Src) {
		return DropForeignSource, false
	}
	if w.table.isOwn(in.Dst) && in.TTL > 0 {
		return 0, true // to the router itself
	}
	if !encap.DecrementTTL(p.Bytes()) {
		w.complain(encap.ICMPTimeExceeded, 0, p.Bytes())
		return DropTTL, false
	}
	in.TTL--
	p.changed()
	return 0, true
}

// linkOfHost says whether a pod's packet to a is for a link of the host, on which it has services of its own: a cloud's metadata, a
// DNS cache of the node. By a bridge it would go there too. Link-local addresses of IPv6 need a link, which a pod does not share.
func (w *worker) linkOfHost(a netip.Addr) bool {
	return w.from.pod != nil && w.set.host != nil && a.Is4() && a.IsLinkLocalUnicast()
}

// sendToPod queues p for a pod of this node. No packet of it is larger than size bytes.
func (w *worker) sendToPod(to *attached, p *Packet, in *encap.Inner, size int) (DropReason, bool) {
	if to.lost.Load() {
		w.complain(encap.ICMPNoRoute, 0, p.Bytes())
		to.pod.rx.drops[DropClosed].Add(uint64(p.segments))
		return DropClosed, false
	}
	if isRedirect(p.Bytes(), in) {
		to.pod.rx.drops[DropUnsupported].Add(uint64(p.segments))
		return DropUnsupported, false
	}
	if limit := int(to.pod.mtu.Load()); limit > 0 && size > limit {
		if whole, r, ok := w.fit(p, in, limit, to, nil); !whole {
			if !ok && r == DropTooBig {
				to.pod.rx.drops[DropTooBig].Add(uint64(p.segments))
			}
			return r, ok
		}
	}
	w.push(p, to)
	return 0, true
}

// isRedirect says whether the packet tells its receiver of another first hop. A pod has one way and no other. The host's kernel sends it redirects all the
// same, for packets that it has from its TUN and routes back into it once it has translated them; and from anybody else a redirect is a forgery.
func isRedirect(b []byte, in *encap.Inner) bool {
	switch {
	case in.Proto != encap.ProtoICMP && in.Proto != encap.ProtoICMPv6 || in.FragOffset != 0 || in.L4 == 0 || in.L4 >= len(b):
		return false
	case in.Version == 4:
		return in.Proto == encap.ProtoICMP && b[in.L4] == 5
	}
	return in.Proto == encap.ProtoICMPv6 && b[in.L4] == 137
}

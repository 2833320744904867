package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
)

// egress decides about a batch that was read from an inner port.
func (w *worker) egress() {
	packets := w.ring.batch()
	for i := range packets {
		p := &packets[i]
		if r, ok := w.send(p); !ok {
			w.refuse(p, r)
		}
		w.flow.Received += uint64(p.segments)
		w.flow.ReceivedBytes += uint64(p.inner)
	}
	w.flush()
}

// send takes one inner packet, or superpacket, as far as the queue of the port
// that it leaves by. ok is false if it is dropped for reason r.
func (w *worker) send(p *Packet) (r DropReason, ok bool) {
	in, err := p.parse()
	if err != nil {
		return DropMalformed, false
	}
	p.trim(in.TotalLen)
	p.inner = in.TotalLen
	size := in.TotalLen // of the largest packet that this is or stands for
	if p.segSize > 0 {
		super, err := p.parseSuper()
		if err != nil {
			return DropMalformed, false
		}
		size, p.segments = super.SegmentLen(0), super.Segments
	}

	if w.from.role == RolePod { // we are its router: no source but its own, and one hop
		if !slices.Contains(w.from.addrs, in.Src) {
			return DropForeignSource, false
		}
		if !encap.DecrementTTL(p.Bytes()) {
			w.complain(encap.ICMPTimeExceeded, 0, p.Bytes())
			return DropTTL, false
		}
		in.TTL--
		p.changed()
	}
	if in.Src != w.source { // packets come in bursts of a flow
		if of := w.table.forged(in.Src); of != nil {
			w.forged(in, of)
			return DropForeignSource, false
		}
		w.source = in.Src
	}
	if isMulticast(in.Dst) {
		return DropMulticast, false
	}
	if encap.MartianDestination(in.Dst) {
		return DropMartian, false
	}

	if to := w.set.pods[in.Dst]; to != nil {
		w.push(p, to)
		return 0, true
	}
	if peer, found := w.table.routes.Lookup(in.Dst); found {
		return w.sendTo(peer, p, in, size)
	}
	if w.from.role == RolePod && w.set.host != nil { // not the overlay's: the host routes it on
		w.push(p, w.set.host)
		return 0, true
	}
	w.complain(encap.ICMPNoRoute, 0, p.Bytes())
	return DropNoRoute, false
}

// sendTo encapsulates p in place for peer. No packet of it is larger than size bytes.
func (w *worker) sendTo(peer *Peer, p *Packet, in *encap.Inner, size int) (DropReason, bool) {
	if peer.state.reach.refuses(w.now) {
		return DropUnderlay, false
	}
	under := w.set.under4
	if peer.spec.Addr.Is6() {
		under = w.set.under6
	}
	limit := peer.maxInner(w.now)
	p.recv, p.limit = peer.spec.Recv, limit
	if in.Version == 6 {
		// No IPv6 sender goes below that (RFC 8200 section 5), so a message that claims less, forged
		// or not, must not stop what the link itself would take.
		limit = max(limit, min(peer.maxSize, encap.MinMTU6))
	}
	if under != nil && under.lanes > 1 && (peer.spec.Weft || peer.headLen > 0) { // kernels take vxlan from any source port
		// The hash is the same for both directions of a flow: what a worker reads from its queue of the TUN then
		// tends to be of one lane, and runs are as long as without lanes.
		p.lane = 1 + uint8(encap.FlowPairHash(p.Bytes(), *in)&uint32(under.lanes-1))
	}
	switch {
	case in.Version == 6 && !peer.inner6:
		w.complain(encap.ICMPNoRoute, 0, p.Bytes())
		return DropUnsupported, false
	case under == nil:
		return DropUnderlay, false
	case size > limit && in.Version == 4 && !in.DF && p.segSize == 0:
		return w.sendFragments(peer, p, in, limit, under)
	case size > limit && in.Version == 4 && !in.DF && in.Proto == encap.ProtoTCP && p.recut(limit):
		// It permits fragments, and smaller segments serve it better.
	case size > limit:
		w.complain(encap.ICMPTooBig, limit, p.Bytes())
		return DropTooBig, false
	}
	w.address(p, peer, in)
	w.push(p, under)
	return 0, true
}

// address gives a packet its outer destination, and what the format puts before it: in
// format ip nothing. RFC 6040 section 4.3: the inner ECN field is copied out only
// where the far end is known to bring it back in; to others it is Not-ECT.
func (w *worker) address(p *Packet, peer *Peer, in *encap.Inner) {
	p.peer = peer
	p.Outer = peer.outer(w.engine.cfg.Port)
	p.OuterECN = encap.NotECT
	if peer.ecn {
		p.OuterECN = in.ECN()
	}
	if peer.headLen > 0 {
		p.putHead(peer, in.Version)
	}
}

// sendFragments sends an IPv4 packet that permits it in pieces of at most limit
// bytes (RFC 791 section 3.2). It is delivered if every piece is.
func (w *worker) sendFragments(peer *Peer, p *Packet, in *encap.Inner, limit int, under *attached) (DropReason, bool) {
	w.flush() // keep the order: what came before goes first
	p.complete()
	for offset := 0; ; {
		piece := w.ring.newReply()
		b, next, err := encap.Fragment4(piece.Space()[:0], p.Bytes(), limit, offset)
		if err != nil {
			return DropTooBig, false
		}
		piece.end, piece.lane = piece.off+len(b), p.lane
		w.address(piece, peer, in)
		under.port.WriteBatch(w.ring, w.ring.replyOut[:])
		if piece.verdict != delivered {
			return piece.reason(), false
		}
		if w.look != nil {
			w.look.sent(w, under, piece)
		}
		if offset = next; offset == 0 {
			break
		}
	}
	if w.look != nil {
		w.address(p, peer, in)
		w.look.fragmented(w, p)
	}
	w.tally.fragmented++
	w.flow.Delivered++
	w.flow.DeliveredBytes += uint64(p.inner)
	w.credit(peer, 1, uint64(p.inner))
	return 0, true
}

// isMulticast says whether a is a group, or every host of a link.
func isMulticast(a netip.Addr) bool {
	return a.IsMulticast() || a == broadcast4
}

// broadcast4 is RFC 919's limited broadcast.
var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})

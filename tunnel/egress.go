package tunnel

import (
	"net/netip"

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
		super, r, ok := p.parseSuper()
		if !ok {
			return r, false
		}
		size, p.segments = super.SegmentLen(0), super.Segments
	}

	if in.Src == in.Dst {
		return DropMartian, false // a host takes that for its own address coming back, and does not answer
	}
	if w.from.pod != nil {
		if r, ok := w.leavePod(p, in); !ok {
			return r, false
		}
	}
	if in.Src != w.source.addr {
		w.source = w.sourceOf(in.Src)
	}
	if in.Dst != w.dest.addr {
		w.dest = w.destOf(in.Dst)
	}
	d := w.dest
	if of := w.source.forged; of != nil && (d.pod == nil || w.from.role != RoleHost) {
		// To a pod here the host's rules may well send on what came from a peer's: it leaves this node no more.
		w.forged(in, of)
		return DropForeignSource, false
	}
	if isMulticast(in.Dst) {
		return DropMulticast, false
	}
	if encap.MartianDestination(in.Dst) && !w.linkOfHost(in.Dst) {
		return DropMartian, false
	}

	if w.byHost(p, in, d) {
		w.push(p, w.set.host)
		return 0, true
	}
	switch {
	case d.pod != nil:
		return w.sendToPod(d.pod, p, in, size)
	case d.peer != nil:
		return w.sendTo(d.peer, p, in, size)
	case w.from.pod != nil && w.set.host != nil: // not the overlay's: the host routes it on
		w.push(p, w.set.host)
		return 0, true
	}
	w.complain(encap.ICMPNoRoute, 0, p.Bytes())
	return DropNoRoute, false
}

// source is what is known of an inner source; the zero source is none.
type source struct {
	addr   netip.Addr
	forged *Peer // whose it is, if it cannot be this host's
	client bool  // it is a pod's or a peer's, and the host has sent the packet on
	pod    bool  // it is a pod's of this node
}

func (w *worker) sourceOf(a netip.Addr) source {
	s := source{addr: a, forged: w.table.forged(a)}
	if w.from.role == RoleHost {
		of := w.destOf(a)
		s.client, s.pod = of.pod != nil || of.peer != nil, of.pod != nil
	}
	return s
}

// dest is where packets to an inner address go; neither a pod nor a peer if it is not the overlay's.
type dest struct {
	addr netip.Addr
	pod  *attached
	peer *Peer
}

func (w *worker) destOf(a netip.Addr) dest {
	d := dest{addr: a, pod: w.set.pod(a)}
	if d.pod == nil {
		d.peer, _ = w.table.routes.Lookup(a)
	}
	return d
}

// sendTo encapsulates p in place for peer. No packet of it is larger than size bytes.
func (w *worker) sendTo(peer *Peer, p *Packet, in *encap.Inner, size int) (DropReason, bool) {
	if peer.state.reach.refuses(w.now) {
		return DropUnderlay, false
	}
	under := w.under(peer)
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
	case size > limit:
		if whole, r, ok := w.fit(p, in, limit, under, peer); !whole {
			return r, ok
		}
	}
	w.address(p, peer, in)
	w.push(p, under)
	return 0, true
}

// under is the underlay by which the peer is reached; nil if there is none.
func (w *worker) under(peer *Peer) *attached {
	if peer.spec.Addr.Is6() {
		return w.set.under6
	}
	return w.set.under4
}

// fit does as a router does with p, which is larger than the limit of bytes that out takes, or stands for packets that are. whole says that
// p can be sent as it is now; otherwise it has been sent in pieces, or is dropped for reason r. peer is the receiver, nil for a pod.
func (w *worker) fit(p *Packet, in *encap.Inner, limit int, out *attached, peer *Peer) (whole bool, r DropReason, ok bool) {
	if in.Version == 4 && !in.DF {
		if p.segSize == 0 {
			r, ok = w.sendFragments(p, in, limit, out, peer)
			return false, r, ok
		}
		if in.Proto == encap.ProtoTCP && p.recut(limit) {
			return true, 0, true // it permits fragments, and smaller segments serve it better
		}
		if in.Proto == encap.ProtoUDP {
			r, ok = w.fragmentSegments(p, limit, out, peer)
			return false, r, ok
		}
	}
	w.complain(encap.ICMPTooBig, limit, p.Bytes())
	return false, DropTooBig, false
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

// fragmentSegments sends each segment of a UDP superpacket in fragments.
func (w *worker) fragmentSegments(p *Packet, limit int, out *attached, peer *Peer) (DropReason, bool) {
	super, r, ok := p.parseSuper()
	if !ok {
		return r, false
	}
	q := w.ring.newSegment()
	for k := range super.Segments {
		q.renew()
		q.segmentOf(p, super, k)
		in, err := q.parse()
		if err != nil {
			return DropMalformed, false
		}
		if r, ok := w.sendFragments(q, in, limit, out, peer); !ok {
			w.refuse(q, r)
		}
	}
	return 0, true
}

// sendFragments sends an IPv4 packet that permits it in pieces of at most limit
// bytes (RFC 791 section 3.2). It is delivered if every piece is.
func (w *worker) sendFragments(p *Packet, in *encap.Inner, limit int, out *attached, peer *Peer) (DropReason, bool) {
	w.flush() // keep the order: what came before goes first
	p.complete()
	for offset := 0; ; {
		piece := w.ring.newReply()
		b, next, err := encap.Fragment4(piece.Space()[:0], p.Bytes(), limit, offset)
		if err != nil {
			return DropTooBig, false
		}
		piece.end, piece.lane = piece.off+len(b), p.lane
		if peer != nil {
			w.address(piece, peer, in)
		}
		out.port.WriteBatch(w.ring, w.ring.replyOut[:])
		if piece.verdict != delivered {
			if out.pod != nil {
				out.pod.rx.drops[piece.reason()].Add(1)
			}
			return piece.reason(), false
		}
		if w.look != nil && peer != nil {
			w.look.sent(w, out, piece)
		}
		if offset = next; offset == 0 {
			break
		}
	}
	if peer == nil {
		peer = p.peer // the sender, on the way in
	} else if w.look != nil {
		w.address(p, peer, in)
	}
	if w.look != nil {
		w.look.fragmented(w, p)
	}
	w.tally.fragmented++
	w.flow.Delivered++
	w.flow.DeliveredBytes += uint64(p.inner)
	w.credit(peer, 1, uint64(p.inner))
	if out.pod != nil {
		out.pod.rx.passed(1, uint64(p.inner), w.now)
	}
	return 0, true
}

// isMulticast says whether a is a group, or every host of a link.
func isMulticast(a netip.Addr) bool {
	return a.IsMulticast() || a == broadcast4
}

// broadcast4 is RFC 919's limited broadcast.
var broadcast4 = netip.AddrFrom4([4]byte{255, 255, 255, 255})

package tunnel

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
	"weft/tunnel/port"
)

// ingress decides about a batch of datagrams that was read from the underlay.
func (w *worker) ingress() {
	packets := w.ring.Batch()
	if w.look != nil {
		w.look.arrived(w, packets)
	}
	for i := range packets {
		if i > 0 && w.repeated(&packets[i-1], &packets[i]) {
			continue
		}
		for p := &packets[i]; p != nil; {
			d, rest := w.decideIn(p)
			if d.dropped() && d.reason() == port.DropMalformed && !p.Parsed() && w.probed(d.peer, p) {
				p.Segments, p.Size = 0, 0 // no packet, and so none received
			}
			if p.Partial && !d.dropped() {
				w.tally.completed++
			}
			w.deliver(p, d)
			w.flow.Received += uint64(p.Segments)
			w.flow.ReceivedBytes += uint64(p.Size)
			p = w.nextPacked(p, rest)
		}
	}
	if n := w.ring.Lost; n > 0 {
		w.flow.Received += uint64(n)
		w.flow.Drops[port.DropTruncated] += uint64(n)
	}
	w.flush()
}

// repeated queues p as q, the packet before it in the batch, was queued, if p is the next packet of the same
// run of TCP: it came from where q did, and its headers are q's but for what counts up. Every check would
// then have the outcome that it had for q. That q was queued last says that it passed, and that nobody has
// changed it since.
func (w *worker) repeated(q, p *port.Packet) bool {
	n := len(w.out)
	if n == 0 || w.out[n-1] != q || !q.Partial || q.SegSize > 0 || p.SegSize > 0 || p.Truncated ||
		p.Outer != q.Outer || p.OuterECN != q.OuterECN || w.table.format == encap.FormatVXLAN ||
		!q.Info.Repeated(q.Bytes(), p.Bytes()) {
		return false
	}
	p.Repeat(q)
	w.tally.completed++
	w.flow.Received++
	w.flow.ReceivedBytes += uint64(p.Size)
	w.queue(p, w.sends[n-1])
	return true
}

// nextPacked makes the next packet of a datagram of several: rest, which stands behind p.
func (w *worker) nextPacked(p *port.Packet, rest int) *port.Packet {
	if rest == 0 {
		return nil
	}
	q := w.ring.Next(p, rest)
	if q == nil { // all slots are in use: what is queued can go
		w.flush()
		w.ring.FreeNext()
		q = w.ring.Next(p, rest)
	}
	return q
}

// decideIn decides about the first packet of a datagram. Everything in it is hostile. It changes the header
// of p where the outer one tells of congestion, and describes in p what it stands for. rest is how many bytes
// follow it in the datagram that are another packet.
func (w *decider) decideIn(p *port.Packet) (d decision, rest int) {
	if !p.Outer.IsValid() {
		return dropped(port.DropMalformed), 0 // a frame that held no datagram
	}
	peer, r, ok := w.identify(p)
	if !ok {
		return dropped(r), 0
	}
	d, rest = w.decideFrom(peer, p)
	d.peer = peer
	return d, rest
}

// decideFrom is decideIn for a datagram of peer, which is nil if senders are not checked.
func (w *decider) decideFrom(peer *Peer, p *port.Packet) (d decision, rest int) {
	if p.Truncated {
		return dropped(port.DropTruncated), 0
	}
	if w.table.format == encap.FormatVXLAN {
		if r, ok := w.table.vtep.unwrap(p); !ok {
			return dropped(r), 0
		}
	}
	datagram := p.Bytes()
	in, err := p.Parse()
	if err != nil {
		return dropped(port.DropMalformed), 0 // or a probe
	}
	p.SetLen(in.TotalLen)
	p.Size = in.TotalLen
	if peer != nil && peer.packs && in.TotalLen < len(datagram) && p.SegSize == 0 {
		// Other bytes behind a packet are ignored, as with flannel.
		more, _ := encap.NextPacked(datagram, in.TotalLen)
		rest = len(more)
	}
	return w.accept(peer, p, in), rest
}

// accept decides about one inner packet of peer.
func (w *decider) accept(peer *Peer, p *port.Packet, in *encap.Inner) decision {
	if p.SegSize > 0 {
		super, r, ok := p.ParseSuper()
		if !ok {
			return dropped(r)
		}
		field := encap.ChecksumOffsetTCP
		if in.Proto == encap.ProtoUDP {
			field = encap.ChecksumOffsetUDP
		}
		if p.CsumStart != in.L4 || p.CsumOffset != field {
			return dropped(port.DropMalformed)
		}
		p.Segments = super.Segments
	}
	ecn, ok := encap.DecapECN(p.OuterECN, in.ECN())
	if !ok {
		return dropped(port.DropECN)
	}
	if in.TTL == 0 { // RFC 2003 section 3.1
		return dropped(port.DropTTL)
	}
	to, r, ok := w.admit(peer, p, in)
	if !ok {
		return dropped(r)
	}

	if to.pod != nil && w.set.host != nil && w.translated(p, in, peer != nil) {
		to = w.set.host // it answers a flow that the host's rules have changed, and that it knows by another name
	}

	if ecn != in.ECN() {
		encap.SetECN(p.Bytes(), ecn)
		in.TrafficClass = in.TrafficClass&^3 | uint8(ecn)
		p.Changed()
	}
	// A virtual wire hands over packets whose checksum a device was to fill in.
	if p.SegSize == 0 {
		p.CsumStart, p.CsumOffset, p.Partial = encap.PartialChecksum(p.Bytes(), *in)
	}
	if w.table.format == encap.FormatIPIP && in.Proto == encap.ProtoUDP && w.joined(p, in) {
		return dropped(port.DropMalformed)
	}
	if p.Partial {
		if r, ok := describe(p, in, w.table.spec.MTU); !ok {
			return dropped(r)
		}
	}

	if to.pod != nil {
		size := in.TotalLen
		if p.SegSize > 0 {
			size = p.Info.SegmentLen(0)
		}
		return decideForPod(to, p, in, size)
	}
	p.SingleReader = w.from.readers < 2 || p.Outer.Port() == w.port
	return decision{to: to}
}

// joined says whether an inner packet of UDP may be several that GRO has joined: a raw socket is handed them
// so, and not told where they were joined. A coalesced packet has a partial checksum, or none.
func (w *decider) joined(p *port.Packet, in *encap.Inner) bool {
	none := in.L4 > 0 && len(p.Bytes()) >= in.L4+8 && binary.BigEndian.Uint16(p.Bytes()[in.L4+6:]) == 0
	return (p.Partial || none) && (w.table.spec.JoinedUDP || w.table.spec.MTU > 0 &&
		in.TotalLen > w.table.spec.MTU)
}

// describe marks a packet with a partial checksum that is larger than the overlay
// carries as the superpacket that it is: a plain socket gets one whole, without its
// segment size.
func describe(p *port.Packet, in *encap.Inner, mtu int) (port.DropReason, bool) {
	if mtu == 0 || in.TotalLen <= mtu || in.Proto != encap.ProtoTCP || p.SegSize > 0 {
		return 0, true
	}
	if !p.Recut(mtu) {
		return port.DropMalformed, false
	}
	return 0, true
}

// identify finds the peer that a datagram came from.
func (w *decider) identify(p *port.Packet) (peer *Peer, r port.DropReason, ok bool) {
	src := p.Outer.Addr()
	if src == w.sender.addr {
		return w.sender.peer, 0, true
	}
	if peer = w.table.senders[src]; peer != nil {
		w.sender = sender{src, peer}
		return peer, 0, true
	}
	if w.table.self[src] {
		return nil, port.DropOwnSource, false
	}
	if w.table.spec.Check == CheckOff {
		return nil, 0, true
	}
	return nil, port.DropUnknownPeer, false
}

// admit checks the inner addresses, and finds the port that the packet is for.
func (w *decider) admit(peer *Peer, p *port.Packet, in *encap.Inner) (to *attached, r port.DropReason,
	ok bool) {
	if c := &w.route; c.to != nil && in.Dst == c.dst && in.Src == c.src && peer == c.peer {
		return c.to, 0, true
	}
	if r, ok = admit(peer, p, in, w.table, w.port); !ok {
		return nil, r, false
	}
	if to = w.set.pod(in.Dst); to == nil {
		to = w.set.host
	}
	if to == nil {
		return nil, port.DropClosed, false
	}
	if !w.table.isOwn(in.Dst) { // each of those is checked, for tunnels in the tunnel
		w.route = route{peer, in.Src, in.Dst, to}
	}
	return to, 0, true
}

// isOwn says whether a is one of the host TUN's addresses.
func (t *Table) isOwn(a netip.Addr) bool { return a == t.spec.Address4 || a == t.spec.Address6 }

// admit judges inner addresses: no martians, a source that is the sender's, a
// destination that is ours, and no tunnel inside the tunnel.
func admit(peer *Peer, p *port.Packet, in *encap.Inner, t *Table, tunnelPort uint16) (port.DropReason, bool) {
	if encap.MartianSource(in.Src) || encap.MartianDestination(in.Dst) || in.Src == in.Dst {
		return port.DropMartian, false
	}
	if t.spec.Check != CheckOff && t.local.Lookup(in.Src) {
		return port.DropForeignSource, false // nobody else has our own subnet
	}
	if t.spec.Check == CheckStrict && !peer.mayUse(in.Src, t.spec.AllowedSources) {
		return port.DropForeignSource, false
	}
	if !t.local.Lookup(in.Dst) {
		return port.DropForeignDest, false
	}
	if t.isOwn(in.Dst) {
		if in.Proto == encap.ProtoIPIP && t.format == encap.FormatIPIP {
			return port.DropNested, false
		}
		if b := p.Bytes(); in.Proto == encap.ProtoUDP && in.L4 > 0 && len(b) >= in.L4+4 &&
			binary.BigEndian.Uint16(b[in.L4+2:]) == tunnelPort {
			return port.DropNested, false
		}
	}
	return 0, true
}

package tunnel

import (
	"encoding/binary"
	"net/netip"

	"weft/encap"
	"weft/tunnel/port"
)

// ingress decides about a batch of datagrams that was read from the underlay, and delivers it.
func (w *worker) ingress() {
	packets := w.ring.Batch()
	if w.captures != nil {
		w.captures.received(w, packets)
	}
	for i := range packets {
		if i > 0 && w.repeated(&packets[i-1], &packets[i]) {
			continue
		}
		for p := &packets[i]; p != nil; {
			d, rest := w.decideIn(p)
			if d.dropped() && d.reason() == port.DropMalformed && !p.Parsed() && w.handleProbe(d.peer, p) {
				p.Segments, p.Size = 0, 0 // a probe is not counted as a packet
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

// repeated reuses the verdict of q, the packet before p in the batch, if p is the next segment of the same
// TCP flow. p must have the outer headers of q, and inner headers that differ only in sequence numbers and
// the like. Every check would then have the same result. q is the last queued packet, so it passed all
// checks, and no one has changed it since.
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

// nextPacked returns the next packet of a datagram with several packets, which starts rest bytes before its
// end. It returns nil if rest is 0.
func (w *worker) nextPacked(p *port.Packet, rest int) *port.Packet {
	if rest == 0 {
		return nil
	}
	q := w.ring.Next(p, rest)
	if q == nil { // all slots are in use: write the queued packets
		w.flush()
		w.ring.FreeNext()
		q = w.ring.Next(p, rest)
	}
	return q
}

// decideIn decides about the first packet of a datagram. It trusts nothing in the datagram. It sets the inner
// ECN field from the outer one, and describes superpackets in p. rest is the number of bytes after the packet
// that are further packets.
func (w *decider) decideIn(p *port.Packet) (d decision, rest int) {
	if !p.Outer.IsValid() {
		return dropped(port.DropMalformed), 0 // a frame without a datagram
	}
	peer, r, ok := w.identify(p)
	if !ok {
		return dropped(r), 0
	}
	d, rest = w.decideFrom(peer, p)
	d.peer = peer
	return d, rest
}

// decideFrom is decideIn for a datagram of peer. peer is nil if sources are not checked.
func (w *decider) decideFrom(peer *Peer, p *port.Packet) (d decision, rest int) {
	if p.Truncated {
		return dropped(port.DropTruncated), 0
	}
	if w.table.format == encap.FormatVXLAN {
		if r, ok := w.table.vtep.decapsulate(p); !ok {
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
		// Other bytes after a packet are ignored, as flannel does.
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
		to = w.set.host // the host's NAT translates this reply
	}

	if ecn != in.ECN() {
		encap.SetECN(p.Bytes(), ecn)
		in.TrafficClass = in.TrafficClass&^3 | uint8(ecn)
		p.HeaderChanged()
	}
	// Packets from a virtual interface may have a checksum that a device was to fill in.
	if p.SegSize == 0 {
		p.CsumStart, p.CsumOffset, p.Partial = encap.PartialChecksum(p.Bytes(), *in)
	}
	if w.table.format == encap.FormatIPIP && in.Proto == encap.ProtoUDP && w.mayBeCoalesced(p, in) {
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

// mayBeCoalesced reports whether a UDP packet may be several that GRO coalesced: a raw socket gets such a
// packet without its segment size. A coalesced packet has a partial checksum or none.
func (w *decider) mayBeCoalesced(p *port.Packet, in *encap.Inner) bool {
	none := in.L4 > 0 && len(p.Bytes()) >= in.L4+8 && binary.BigEndian.Uint16(p.Bytes()[in.L4+6:]) == 0
	return (p.Partial || none) && (w.table.spec.CoalescedUDP || w.table.spec.MTU > 0 &&
		in.TotalLen > w.table.spec.MTU)
}

// describe restores the segment size of a TCP packet with a partial checksum that exceeds the overlay's MTU.
// A plain socket delivers such a superpacket without its segment size.
func describe(p *port.Packet, in *encap.Inner, mtu int) (port.DropReason, bool) {
	if mtu == 0 || in.TotalLen <= mtu || in.Proto != encap.ProtoTCP || p.SegSize > 0 {
		return 0, true
	}
	if !p.Resegment(mtu) {
		return port.DropMalformed, false
	}
	return 0, true
}

// identify returns the peer that sent the datagram.
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

// admit checks the inner addresses, and returns the port that the packet goes to.
func (w *decider) admit(peer *Peer, p *port.Packet, in *encap.Inner) (to *attachedPort, r port.DropReason,
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
	if !w.table.isOwn(in.Dst) { // packets to these are checked one by one for a nested tunnel
		w.route = route{peer, in.Src, in.Dst, to}
	}
	return to, 0, true
}

// isOwn reports whether a is one of the host TUN's addresses.
func (t *Table) isOwn(a netip.Addr) bool { return a == t.spec.Address4 || a == t.spec.Address6 }

// admit checks inner addresses: no martians, a source that the peer may use, a destination of this node, and
// no tunnel inside the tunnel.
func admit(peer *Peer, p *port.Packet, in *encap.Inner, t *Table, tunnelPort uint16) (port.DropReason, bool) {
	if encap.MartianSource(in.Src) || encap.MartianDestination(in.Dst) || in.Src == in.Dst {
		return port.DropMartian, false
	}
	if t.spec.Check != CheckOff && t.local.Lookup(in.Src) {
		return port.DropForeignSource, false // no peer has this node's subnet
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

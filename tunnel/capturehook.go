package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
	"weft/tunnel/port"
)

// arrived shows the datagrams of a batch as they were read.
func (l *captures) arrived(w *worker, packets []port.Packet) {
	for _, c := range l.list {
		if !c.want.Outer {
			continue
		}
		r := c.rings[w.index]
		for i := range packets {
			if p := &packets[i]; p.Outer.IsValid() {
				c.datagram(w, r, p, w.from, w.table.senders[p.Outer.Addr()], p.Bytes(), true)
			}
		}
		r.publish()
	}
}

// written shows packets that a port has been handed.
func (l *captures) written(w *worker, ps []*port.Packet, sends []send) {
	for _, c := range l.list {
		r := c.rings[w.index]
		for i, p := range ps {
			to, peer := sends[i].to, sends[i].peer
			if p.Verdict != port.Delivered {
				if c.want.Dropped && c.inner(w, r, p, p.Outer, peer) {
					r.last().dropped, r.last().reason = true, p.Verdict.Reason()
				}
				continue
			}
			if c.want.Inner {
				c.inner(w, r, p, p.Outer, peer)
			}
			if c.want.Outer && to.role == RoleUnderlay {
				c.datagram(w, r, p, to, peer, p.Datagram(), false)
			}
		}
		r.publish()
	}
}

// fragmented shows a packet that left in pieces, as it was before.
func (l *captures) fragmented(w *worker, p *port.Packet, peer *Peer) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.want.Inner {
			c.inner(w, r, p, p.Outer, peer)
			r.publish()
		}
	}
}

// told shows an ICMP error that we send back, to who sent what it is about.
func (l *captures) told(w *worker, p *port.Packet) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.want.Inner && c.inner(w, r, p, p.Outer, nil) {
			r.last().outbound = w.from.role == RoleUnderlay // to a peer
			r.publish()
		}
	}
}

// sent shows a datagram that was written to out by itself.
func (l *captures) sent(w *worker, out *attached, p *port.Packet, peer *Peer) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.want.Outer {
			c.datagram(w, r, p, out, peer, p.Datagram(), false)
			r.publish()
		}
	}
}

// refused shows a packet that was dropped before it was to be written. A packet without a readable inner
// header is shown as the datagram that it came in.
func (l *captures) refused(w *worker, p *port.Packet, peer *Peer, reason port.DropReason) {
	if p.Segments == 0 {
		return // a probe, which counts as no packet
	}
	addr := p.Outer
	if !addr.IsValid() && p.Parsed() && w.from.role != RoleUnderlay {
		if to, found := w.table.routes.Lookup(p.Info.Dst); found {
			peer, addr = to, to.outer(w.engine.cfg.Port)
		}
	}
	for _, c := range l.list {
		if !c.want.Dropped {
			continue
		}
		r := c.rings[w.index]
		var ok bool
		if p.Parsed() || w.from.role != RoleUnderlay {
			ok = c.inner(w, r, p, addr, peer)
		} else if p.Outer.IsValid() {
			ok = c.datagram(w, r, p, w.from, w.table.senders[p.Outer.Addr()], p.Bytes(), true)
		}
		if ok {
			r.last().dropped, r.last().reason = true, reason
		}
		r.publish()
	}
}

// wants says whether packets of the node at addr are wanted.
func (c *Capture) wants(addr netip.Addr) bool {
	return len(c.want.Peers) == 0 || slices.Contains(c.want.Peers, addr)
}

// inner copies an inner packet. It returns false if it is not wanted, or has no room.
func (c *Capture) inner(w *worker, r *captureRing, p *port.Packet, addr netip.AddrPort, peer *Peer) bool {
	b := p.Bytes()
	if !c.wants(addr.Addr()) || c.want.Match != nil && !c.want.Match(b) {
		return false
	}
	n := min(len(b), c.want.SnapLen)
	to := r.room(n)
	if to == nil {
		r.missed.Add(1)
		return false
	}
	copy(to, b)
	rec := r.write(w, p, n, len(b))
	rec.addr, rec.partial, rec.csumStart, rec.csumOffset = addr, p.Partial, p.CsumStart, p.CsumOffset
	rec.named(peer)
	return true
}

// outerLen is the most that the outer headers take: IPv6 and UDP.
const outerLen = encap.IPv6Len + encap.UDPLen

// datagram copies a datagram with the given payload that the underlay's port at sends to peer, or has read
// from it, behind headers that are made for it. It returns false if it is not wanted, or has no room.
func (c *Capture) datagram(w *worker, r *captureRing, p *port.Packet, at *attached, peer *Peer,
	payload []byte, read bool) bool {
	if !c.wants(p.Outer.Addr()) {
		return false
	}
	to := r.room(min(c.want.SnapLen, outerLen+len(payload)) + outerLen) // whole headers, to be matched
	if to == nil {
		r.missed.Add(1)
		return false
	}
	o := encap.Outer{Src: at.local, Dst: p.Outer, TrafficClass: uint8(p.OuterECN), TTL: 64, DF: true}
	if read {
		o.Src, o.Dst = p.Outer, at.local
	} else if p.Lane > 0 && at.lane != nil {
		o.Src = netip.AddrPortFrom(at.local.Addr(), at.lane(p.Lane))
	}
	appendOuter := encap.AppendOuter
	if w.table.format == encap.FormatIPIP {
		appendOuter = encap.AppendOuterIPIP
	}
	head, err := appendOuter(to[:0], o, min(len(payload), port.MaxPacket-encap.IPv4Len-encap.UDPLen))
	if err != nil {
		return false
	}
	length := len(head) + len(payload)
	n := min(c.want.SnapLen, length)
	have := len(head) + copy(to[len(head):], payload)
	if c.want.Match != nil && !c.want.Match(to[:have]) {
		return false
	}
	rec := r.write(w, p, n, length)
	rec.addr, rec.outer, rec.outbound = p.Outer, true, !read
	rec.named(peer)
	return true
}

// write makes the record of what was copied into room: n of length bytes.
func (r *captureRing) write(w *worker, p *port.Packet, n, length int) *captureRecord {
	rec := &r.records[r.next%uint64(len(r.records))]
	*rec = captureRecord{time: w.now, from: r.free, n: n, length: length, outbound: w.flow == &w.tally.egress}
	if p.SegSize > 0 {
		rec.segments, rec.segSize = p.Segments, p.SegSize
	}
	r.free += n
	r.next++
	return rec
}

// last is the record that was written last.
func (r *captureRing) last() *captureRecord { return &r.records[(r.next-1)%uint64(len(r.records))] }

// named notes whose packet it is.
func (r *captureRecord) named(p *Peer) {
	if p != nil {
		r.peer = p.spec.Name
	}
}

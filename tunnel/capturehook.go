package tunnel

import (
	"net/netip"
	"slices"

	"weft/encap"
	"weft/tunnel/port"
)

// received copies the datagrams of a batch as they were read.
func (l *captureSet) received(w *worker, packets []port.Packet) {
	for _, c := range l.list {
		if !c.options.Outer {
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

// written copies packets that were written to a port.
func (l *captureSet) written(w *worker, ps []*port.Packet, sends []send) {
	for _, c := range l.list {
		r := c.rings[w.index]
		for i, p := range ps {
			to, peer := sends[i].to, sends[i].peer
			if p.Verdict != port.Delivered {
				if c.options.Dropped && c.inner(w, r, p, p.Outer, peer) {
					r.last().dropped, r.last().reason = true, p.Verdict.Reason()
				}
				continue
			}
			if c.options.Inner {
				c.inner(w, r, p, p.Outer, peer)
			}
			if c.options.Outer && to.role == RoleUnderlay {
				c.datagram(w, r, p, to, peer, p.Datagram(), false)
			}
		}
		r.publish()
	}
}

// fragmented copies a packet that was sent in fragments.
func (l *captureSet) fragmented(w *worker, p *port.Packet, peer *Peer) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.options.Inner {
			c.inner(w, r, p, p.Outer, peer)
			r.publish()
		}
	}
}

// icmpSent copies an ICMP error that was sent to the sender of a packet.
func (l *captureSet) icmpSent(w *worker, p *port.Packet) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.options.Inner && c.inner(w, r, p, p.Outer, nil) {
			r.last().outbound = w.from.role == RoleUnderlay // to a peer
			r.publish()
		}
	}
}

// datagramSent copies a datagram that was written to out by itself.
func (l *captureSet) datagramSent(w *worker, out *attachedPort, p *port.Packet, peer *Peer) {
	for _, c := range l.list {
		if r := c.rings[w.index]; c.options.Outer {
			c.datagram(w, r, p, out, peer, p.Datagram(), false)
			r.publish()
		}
	}
}

// dropped copies a packet that was dropped before it was written. A packet without a readable inner header is
// copied as its datagram.
func (l *captureSet) dropped(w *worker, p *port.Packet, peer *Peer, reason port.DropReason) {
	if p.Segments == 0 {
		return // a probe is not counted as a packet
	}
	addr := p.Outer
	if !addr.IsValid() && p.Parsed() && w.from.role != RoleUnderlay {
		if to, found := w.table.routes.Lookup(p.Info.Dst); found {
			peer, addr = to, to.outer(w.engine.cfg.Port)
		}
	}
	for _, c := range l.list {
		if !c.options.Dropped {
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

// wants reports whether packets of the node at addr are selected.
func (c *Capture) wants(addr netip.Addr) bool {
	return len(c.options.Peers) == 0 || slices.Contains(c.options.Peers, addr)
}

// inner copies an inner packet. It returns false if the packet is not selected or the ring is full.
func (c *Capture) inner(w *worker, r *captureRing, p *port.Packet, addr netip.AddrPort, peer *Peer) bool {
	b := p.Bytes()
	if !c.wants(addr.Addr()) || c.options.Match != nil && !c.options.Match(b) {
		return false
	}
	n := min(len(b), c.options.SnapLen)
	to := r.room(n)
	if to == nil {
		r.missed.Add(1)
		return false
	}
	copy(to, b)
	rec := r.write(w, p, n, len(b))
	rec.addr, rec.partial, rec.csumStart, rec.csumOffset = addr, p.Partial, p.CsumStart, p.CsumOffset
	rec.setPeer(peer)
	return true
}

// outerLen is the largest length of the outer headers: IPv6 and UDP.
const outerLen = encap.IPv6Len + encap.UDPLen

// datagram copies a datagram that port at sent to peer or, with read, received. It makes the outer headers.
// It returns false if the datagram is not selected or the ring is full.
func (c *Capture) datagram(w *worker, r *captureRing, p *port.Packet, at *attachedPort, peer *Peer,
	payload []byte, read bool) bool {
	if !c.wants(p.Outer.Addr()) {
		return false
	}
	to := r.room(min(c.options.SnapLen, outerLen+len(payload)) + outerLen) // Match needs the whole headers
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
	n := min(c.options.SnapLen, length)
	have := len(head) + copy(to[len(head):], payload)
	if c.options.Match != nil && !c.options.Match(to[:have]) {
		return false
	}
	rec := r.write(w, p, n, length)
	rec.addr, rec.outer, rec.outbound = p.Outer, true, !read
	rec.setPeer(peer)
	return true
}

// write adds the record of a packet of length bytes, of which n were copied to room.
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

// last returns the record that was written last.
func (r *captureRing) last() *captureRecord { return &r.records[(r.next-1)%uint64(len(r.records))] }

// setPeer sets the name of the packet's peer.
func (r *captureRecord) setPeer(p *Peer) {
	if p != nil {
		r.peer = p.spec.Name
	}
}

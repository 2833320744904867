package port

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// Sizes of a merger. A flow's run is found by a hash of its addresses and ports, so a packet is compared with
// only one run. Two flows with the same hash evict each other, which makes their runs shorter.
const ( // number of bits in merger.open
	openRuns = 64 // packets in a run: a superpacket of 64 KB has about 45
	maxMerge = 64 // packets in a run: a superpacket of 64 KB has 45
)

// merger coalesces packets that are written to a TUN. It holds packets only during one WriteBatch, so a lone
// packet or ACK never waits for another batch.
type merger struct {
	runs [openRuns]openRun
	open uint64 // bit set of the runs with packets
	ring *Ring  // the ring that the merger belongs to
}

// openRun is one flow's superpacket under construction.
type openRun struct {
	run     encap.Run
	packets [maxMerge]*Packet
	iov     [2 + maxMerge]unix.Iovec // virtio-net header, header, payloads
	head    [encap.MaxSegmentHeader]byte
	vnet    [encap.VNetHdrLen]byte
}

// add writes p to t, or adds it to a run. The packets of a flow stay in order.
func (m *merger) add(t *OffloadTUN, p *Packet) {
	b := p.Bytes()
	in, err := p.Parse()
	if err != nil {
		p.Drop(DropMalformed)
		return
	}
	if in.L4 == 0 || in.Fragment() || in.TotalLen < in.L4+4 {
		m.flush(t) // the flow is unknown: write all runs first
		t.writeOne(m.ring, &m.runs[0], p)
		return
	}
	k := runIndex(b, in)
	o, bit := &m.runs[k], uint64(1)<<k
	if m.open&bit != 0 {
		if n := o.run.Segments(); p.SegSize == 0 && n < maxMerge && o.join(p, in, n) {
			return
		}
		o.flush(m.ring, t)
		m.open &^= bit
	}
	if p.SegSize == 0 && t.merges(in.Proto) && o.run.Start(b, *in, p.Partial) {
		o.packets[0] = p
		m.open |= bit
		return
	}
	t.writeOne(m.ring, o, p)
}

// runIndex returns the index of a flow's run. It is always the same for a flow.
func runIndex(b []byte, in *encap.Inner) int {
	src, dst := b[12:16], b[16:20]
	if in.Version == 6 {
		src, dst = b[20:24], b[36:40]
	}
	h := binary.NativeEndian.Uint32(src)*0x9e3779b1 ^ binary.NativeEndian.Uint32(dst)*0x85ebca77 ^
		binary.NativeEndian.Uint32(b[in.L4:])*0xc2b2ae3d ^ uint32(in.Proto)
	return int(h * 0x9e3779b1 >> 26)
}

func (t *OffloadTUN) merges(proto uint8) bool {
	return proto == encap.ProtoTCP && t.tcp.On() || proto == encap.ProtoUDP && t.udp.On()
}

// join adds p to the run as segment n, if it fits.
func (o *openRun) join(p *Packet, in *encap.Inner, n int) bool {
	from, ok := o.run.Add(p.Bytes(), *in, p.Partial)
	if ok {
		o.packets[n] = p
		o.iov[2+n] = iovec(p.Bytes()[from:])
	}
	return ok
}

// flush writes all open runs.
func (m *merger) flush(t *OffloadTUN) {
	for ; m.open != 0; m.open &= m.open - 1 {
		m.runs[bits.TrailingZeros64(m.open)].flush(m.ring, t)
	}
}

// flush writes the run, and sets its packets' verdicts.
func (o *openRun) flush(r *Ring, t *OffloadTUN) {
	packets := o.packets[:o.run.Segments()]
	first := packets[0].Bytes()
	h := o.run.Finish(o.head[:copy(o.head[:], first)])
	h.Put(o.vnet[:])
	o.iov[0], o.iov[1] = iovec(o.vnet[:]), iovec(first)
	v := o.iov[:2]
	if len(packets) > 1 {
		v = o.iov[:2+len(packets)]
		v[1], v[2] = iovec(o.head[:h.HdrLen]), iovec(first[h.HdrLen:])
	}
	r.Writes++
	errno := writev(t.queueFor(r, packets[0]), v)
	if errno != unix.EINVAL || len(packets) == 1 {
		if errno == 0 && len(packets) > 1 {
			t.offloadOf(h.GSOType).used(len(packets))
		}
		for _, p := range packets {
			p.verdictOf(errno)
		}
		return
	}
	// Some kernels reject superpackets that they should accept: turn the offload off.
	t.offloadOf(h.GSOType).lose(t.log, t.name, errno)
	for _, p := range packets {
		t.writeOne(r, o, p)
	}
}

func (t *OffloadTUN) offloadOf(gsoType uint8) *OffloadSwitch {
	if gsoType == encap.VNetGSOUDPL4 {
		return &t.udp
	}
	return &t.tcp
}

// writeOne writes p unchanged: a packet, or a superpacket from another port. It uses the memory of o, which
// must be idle.
func (t *OffloadTUN) writeOne(r *Ring, o *openRun, p *Packet) {
	var h encap.VNetHdr
	if p.Partial {
		h.Flags, h.CsumStart, h.CsumOffset = encap.VNetNeedsCsum, uint16(p.CsumStart), uint16(p.CsumOffset)
	}
	if p.SegSize > 0 {
		super, r, ok := p.ParseSuper()
		if !ok {
			p.Drop(r)
			return
		}
		h = p.vnet(super)
	}
	h.Put(o.vnet[:])
	o.iov[0], o.iov[1] = iovec(o.vnet[:]), iovec(p.Bytes())
	r.Writes++
	p.verdictOf(writev(t.queueFor(r, p), o.iov[:2]))
}

package port

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// read reads until nothing is left: one frame, or superframe, a recvfrom(2).
func (f *frames) read(fd int, ring *Ring) error {
	front := encap.VNetHdrLen + encap.EthernetLen + encap.IPv4Len + encap.UDPLen
	if f.local.Addr().Is6() {
		front += encap.IPv6Len - encap.IPv4Len
	}
	for {
		p := ring.Slot()
		if p == nil {
			return nil
		}
		b := p.buf[p.off-front:] // so that the inner packet comes to lie where others do
		n, errno := recv(fd, b, unix.MSG_TRUNC)
		switch errno {
		case 0:
			p.Truncated = n > len(b)
			f.take(ring, p, b[:min(n, len(b))], front)
		case unix.EAGAIN:
			return nil
		case unix.EINVAL:
			// The frame is one of several that a virtio-net header cannot describe, SCTP segments
			// in a tunnel for one. The kernel has dropped it: whoever sends it must not cost the port.
			ring.Commit(0)
		case unix.EINTR, unix.ENETDOWN: // the link went down: it may come up again
		default:
			return fmt.Errorf("receive frames for %v: %w", f.local, errno)
		}
	}
}

// take commits the slot with what the frame in b, behind its virtio-net header, carries. A frame that makes
// no sense is committed without an outer address, to be counted.
func (f *frames) take(ring *Ring, p *Packet, b []byte, front int) {
	h, err := encap.ParseVNetHdr(b)
	var frame encap.Frame
	if err == nil {
		b = b[encap.VNetHdrLen:]
		frame, err = encap.ParseFrame(b)
	}
	if err != nil || frame.From != front-encap.VNetHdrLen || !describeFrame(p, b, frame, h) {
		p.Renew()
		ring.Commit(0)
		return
	}
	p.Outer, p.OuterECN = frame.Src, frame.ECN
	n, size := frame.To-frame.From, int(h.GSOSize)
	if h.GSOType&^encap.VNetGSOECN != encap.VNetGSOUDPL4 || p.SegSize > 0 {
		ring.Commit(n)
		return
	}
	ring.CommitRun(n, size)
	if f.gro.On() { // what others send as one arrives as one with the offload switched off too
		f.gro.used((n + size - 1) / size)
	}
}

// describeFrame notes what the virtio-net header says about the inner packet in a frame: that
// its checksum is partial, that it is a superpacket. csum_start tells an inner USO packet
// from a batch of datagrams. It is false if header and frame do not fit, or if a checksum that
// nobody has verified is wrong.
func describeFrame(p *Packet, b []byte, f encap.Frame, h encap.VNetHdr) bool {
	inner := int(h.CsumStart) - f.From
	if h.Flags&encap.VNetNeedsCsum != 0 && inner > 0 {
		p.Partial, p.CsumStart, p.CsumOffset = true, inner, int(h.CsumOffset)
	}
	switch h.GSOType &^ encap.VNetGSOECN {
	case encap.VNetGSONone:
		const vouched = encap.VNetNeedsCsum | encap.VNetDataValid
		return h.Flags&vouched != 0 || !f.Checksum || intact(b, f)
	case encap.VNetGSOUDPL4:
		if p.Partial {
			p.SegSize = int(h.GSOSize)
		}
		return h.GSOSize > 0
	case encap.VNetGSOTCPv4, encap.VNetGSOTCPv6:
		p.SegSize = int(h.GSOSize)
		return h.GSOSize > 0 && p.Partial
	}
	return false
}

// intact verifies the outer UDP checksum of the frame in b.
func intact(b []byte, f encap.Frame) bool {
	return encap.Fold(encap.Sum(b[f.L4:f.To], encap.PseudoHeaderSum(f.Src.Addr(), f.Dst.Addr(), encap.ProtoUDP,
		f.To-f.L4))) == 0xffff
}

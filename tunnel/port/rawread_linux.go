package port

import (
	"fmt"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// read reads one frame or superframe per recvfrom(2), until none is left.
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
		b := p.buf[p.off-front:] // the inner packet starts at the same offset as in other ports
		n, errno := recv(fd, b, unix.MSG_TRUNC)
		switch errno {
		case 0:
			p.Truncated = n > len(b)
			f.commitFrame(ring, p, b[:min(n, len(b))], front)
		case unix.EAGAIN:
			return nil
		case unix.EINVAL:
			// The frame is one that a virtio-net header cannot describe, such as SCTP segments in a tunnel. The kernel
			// has dropped it. A sender of such frames must not kill the port.
			ring.Commit(0)
		case unix.EINTR, unix.ENETDOWN: // the link is down, and may come up again
		default:
			return fmt.Errorf("receive frames for %v: %w", f.local, errno)
		}
	}
}

// commitFrame commits the slot with the payload of the frame in b, which starts with a virtio-net header. An
// invalid frame is committed without an outer address, so that it is counted.
func (f *frames) commitFrame(ring *Ring, p *Packet, b []byte, front int) {
	h, err := encap.ParseVNetHdr(b)
	var frame encap.Frame
	if err == nil {
		b = b[encap.VNetHdrLen:]
		frame, err = encap.ParseFrame(b)
	}
	if err != nil || frame.From != front-encap.VNetHdrLen || !describeFrame(p, b, frame, h) {
		p.Reset()
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
	if f.gro.On() { // superframes arrive even if the offload is switched off
		f.gro.used((n + size - 1) / size)
	}
}

// describeFrame describes the inner packet in p from the virtio-net header: a partial checksum, a
// superpacket. csum_start distinguishes an inner USO packet from a run of datagrams. It returns false if
// header and frame contradict each other, or if an unverified outer checksum is wrong.
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

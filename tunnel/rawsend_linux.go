package tunnel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// frontLen is the room for a virtio-net header and the headers of a frame, in bytes.
const frontLen = encap.VNetHdrLen + encap.EthernetLen + encap.IPv6Len + encap.UDPLen

// WriteBatch implements Port: in runs, as the UDP socket does, which come here again in
// whole and transmit.
func (r *Raw) WriteBatch(ring *Ring, ps []*Packet) { r.writeRuns(ring, ps) }

// hop is the next hop to an outer address; nil if the kernel is to send. due says that there
// is one, but that it is time for the kernel to.
func (r *Raw) hop(ring *Ring, to netip.Addr) (h *hop, due bool) {
	h = (*r.hops.Load())[to]
	if h != nil && ring.now >= h.confirm.Load() {
		return h, true
	}
	return h, false
}

// transmit implements wire: one frame, or a USO superframe that the device or the kernel
// cuts into n datagrams.
func (r *Raw) transmit(ring *Ring, from, to, n, size int) unix.Errno {
	u := &ring.io.send
	h, due := r.hop(ring, u.first.Outer.Addr())
	if due {
		h.confirm.Store(ring.now + int64(confirmEvery))
	}
	if h == nil || due {
		return r.OffloadSocket.transmit(ring, from, to, n, size)
	}
	head := h.template.Len()
	v := encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: uint16(head - encap.UDPLen), CsumOffset: encap.ChecksumOffsetUDP}
	payload := size
	if n > 1 {
		v.GSOType, v.HdrLen, v.GSOSize = encap.VNetGSOUDPL4, uint16(head), uint16(size)
		payload = u.bytes
	}
	if payload > h.template.MaxPayload() { // no length field can say it
		return unix.EMSGSIZE
	}
	front := u.front[:encap.VNetHdrLen+head]
	v.Put(front)
	h.template.Put(front[encap.VNetHdrLen:], payload, u.first.OuterECN, 0, true)
	r.setLane(front[encap.VNetHdrLen+head-encap.UDPLen:], u.first.lane)
	u.iov[from-1] = iovec(front)
	fd := r.packets[ring.worker%len(r.packets)]
	for range 4 {
		errno := writev(fd, u.iov[from-1:to])
		if errno != unix.EAGAIN {
			return errno
		}
		ring.io.waitWritable(fd)
	}
	return unix.EAGAIN
}

// setLane puts a lane's source port into a UDP header that a template made, of which no sum that
// the template has covers the ports.
func (r *Raw) setLane(udp []byte, lane uint8) {
	if lane > 0 && int(lane) <= len(r.ways) {
		binary.BigEndian.PutUint16(udp, r.ways[lane-1].local.Port())
	}
}

// whole implements wire: the superpacket gets its outer headers in place and leaves by the
// TAP, to be cut where the kernel's own tunnels are.
func (r *Raw) whole(ring *Ring, p *Packet) bool {
	// A packet of one segment is no superpacket, and a TAP that it met on its way would refuse it.
	if r.tap == nil || !r.tap.use.Load() || !r.tunnel.on() || !p.partial || p.segments < 2 || p.off != Headroom {
		return false
	}
	h, due := r.hop(ring, p.Outer.Addr())
	if h == nil || due || len(p.Bytes()) > h.template.MaxPayload() {
		return false
	}
	head := h.template.Len()
	v, ok := p.vnet()
	if !ok {
		return false
	}
	six := p.Outer.Addr().Is6()
	if v.HdrLen, v.CsumStart = v.HdrLen+uint16(head), v.CsumStart+uint16(head); six {
		v.GSOType |= encap.VNetGSOTunnel6
		v.Flags |= encap.VNetTunnelCsum // IPv6 has no datagrams without
	} else {
		v.GSOType |= encap.VNetGSOTunnel4
	}
	b := p.buf[p.off-head-encap.VNetTunnelHdrLen : p.end]
	v.PutTunnel(b, head-encap.UDPLen, head)
	h.template.Put(b[encap.VNetTunnelHdrLen:], len(p.Bytes()), p.OuterECN, 0, six)
	r.setLane(b[encap.VNetTunnelHdrLen+head-encap.UDPLen:], p.lane)
	switch errno := write(r.tap.fd, b); errno {
	case 0:
		r.tunnel.used(p.segments)
	case unix.EIO, unix.EBADFD: // it is down or deleted: cut the packet until it is there again
		return false
	case unix.EINVAL:
		r.tunnel.lose(r.log, r.tap.name, errno)
		return false
	default:
		p.verdictOf(errno)
	}
	return true
}

// vnet is the virtio-net header of a superpacket, with the offsets of the inner packet. It is
// false if the packet is none that the header can describe.
func (p *Packet) vnet() (h encap.VNetHdr, ok bool) {
	b, l4 := p.Bytes(), p.csumStart
	h = encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOSize: uint16(p.segSize), CsumStart: uint16(l4), CsumOffset: uint16(p.csumOffset)}
	switch {
	case l4 < encap.IPv4Len || len(b) < l4+20:
		return h, false
	case p.csumOffset == encap.ChecksumOffsetUDP:
		h.GSOType, h.HdrLen = encap.VNetGSOUDPL4, uint16(l4+encap.UDPLen)
		return h, true
	case b[0]>>4 == 6:
		h.GSOType = encap.VNetGSOTCPv6
	default:
		h.GSOType = encap.VNetGSOTCPv4
	}
	h.HdrLen = uint16(l4 + int(b[l4+12]>>4)*4)
	if b[l4+13]&0x80 != 0 { // CWR
		h.GSOType |= encap.VNetGSOECN
	}
	return h, true
}

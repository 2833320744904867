package port

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// frontLen is the room for a virtio-net header and the headers of a frame, in bytes.
const frontLen = encap.VNetHdrLen + encap.EthernetLen + encap.IPv6Len + encap.UDPLen

// frameWire is the wire of path raw: runs leave as frames, superpackets whole by the TAP, and what has no
// next hop by a UDP socket.
type frameWire struct {
	frames  *frames
	tap     *tap
	sockets *sockets
}

// whole implements wire: the superpacket gets its outer headers in place and leaves by the
// TAP, to be cut where the kernel's own tunnels are.
func (w *frameWire) whole(runs *runWriter, ring *Ring, p *Packet) bool {
	if !w.tap.takes(p) {
		return false
	}
	h, due := w.frames.hop(p.Outer.Addr(), ring.now)
	if h == nil || due || len(p.Bytes()) > h.template.MaxPayload() {
		return false
	}
	super, _, ok := p.ParseSuper()
	if !ok {
		return false
	}
	head, v := h.template.Len(), p.vnet(super)
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
	w.setLane(b[encap.VNetTunnelHdrLen+head-encap.UDPLen:], p.Lane)
	runs.flush(ring) // keep the order: what came before goes first
	runs.drain(ring)
	ring.Writes++
	return w.tap.send(b, p)
}

// address implements wire: one frame, or a USO superframe that the device or the kernel
// cuts into n datagrams.
func (w *frameWire) address(ring *Ring, m *sendRun, to *messageHeader, v []unix.Iovec, n, size int) {
	h, due := w.frames.hop(m.first.Outer.Addr(), ring.now)
	if due {
		h.confirm.Store(ring.now + int64(confirmEvery))
	}
	payload := size
	if n > 1 {
		payload = m.total
	}
	if h == nil || due || payload > h.template.MaxPayload() { // no length field can say it
		w.sockets.address(ring, m, to, v, n, size)
		return
	}
	head := h.template.Len()
	vnet := encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: uint16(head - encap.UDPLen),
		CsumOffset: encap.ChecksumOffsetUDP}
	if n > 1 {
		vnet.GSOType, vnet.HdrLen, vnet.GSOSize = encap.VNetGSOUDPL4, uint16(head), uint16(size)
	}
	front := m.front[:encap.VNetHdrLen+head]
	vnet.Put(front)
	h.template.Put(front[encap.VNetHdrLen:], payload, m.first.OuterECN, 0, true)
	w.setLane(front[encap.VNetHdrLen+head-encap.UDPLen:], m.first.Lane)
	v[0] = iovec(front)
	m.fd = w.frames.out[ring.Worker%len(w.frames.out)]
	to.gather(v)
	to.Name, to.Namelen = nil, 0
	to.Control = nil
	to.SetControllen(0)
}

// setLane puts a lane's source port into a UDP header that a template made, of which no sum that
// the template has covers the ports.
func (w *frameWire) setLane(udp []byte, lane uint8) {
	if lane > 0 && int(lane) <= len(w.sockets.lanes) {
		binary.BigEndian.PutUint16(udp, w.sockets.lanes[lane-1].local.Port())
	}
}

// vnet is the virtio-net header of a superpacket, with the offsets of the inner packet.
func (p *Packet) vnet(s *encap.Super) encap.VNetHdr {
	h := encap.VNetHdr{Flags: encap.VNetNeedsCsum, HdrLen: uint16(s.HeaderLen), GSOSize: uint16(p.SegSize),
		CsumStart: uint16(p.CsumStart), CsumOffset: uint16(p.CsumOffset)}
	h.GSOType = encap.GSOType(s.Version, s.Proto)
	if s.Proto == encap.ProtoTCP && p.Bytes()[s.L4+13]&0x80 != 0 { // CWR
		h.GSOType |= encap.VNetGSOECN
	}
	return h
}

package port

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// frontLen is the largest size of a virtio-net header and the headers of a frame, in bytes.
const frontLen = encap.VNetHdrLen + encap.EthernetLen + encap.IPv6Len + encap.UDPLen

// frameWire is the wire of path raw. Runs leave as frames, and superpackets whole by the TAP. Packets without
// a next hop leave by a UDP socket.
type frameWire struct {
	frames  *frames
	tap     *tap
	sockets *sockets
}

// whole implements wire. It puts the outer headers before the superpacket and writes it to the TAP. It is
// segmented where those of the kernel's own tunnels are.
func (w *frameWire) whole(runs *runWriter, ring *Ring, p *Packet) bool {
	if !w.tap.accepts(p) {
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
		v.Flags |= encap.VNetTunnelCsum // a UDP checksum is mandatory over IPv6
	} else {
		v.GSOType |= encap.VNetGSOTunnel4
	}
	b := p.buf[p.off-head-encap.VNetTunnelHdrLen : p.end]
	v.PutTunnel(b, head-encap.UDPLen, head)
	h.template.Put(b[encap.VNetTunnelHdrLen:], len(p.Bytes()), p.OuterECN, 0, six)
	w.setLane(b[encap.VNetTunnelHdrLen+head-encap.UDPLen:], p.Lane)
	runs.flush(ring) // the packets before p go first
	runs.drain(ring)
	ring.Writes++
	return w.tap.send(b, p)
}

// address implements wire with one frame, or with a USO superframe that the device or the kernel splits into
// n datagrams.
func (w *frameWire) address(ring *Ring, m *sendRun, to *messageHeader, v []unix.Iovec, n, size int) {
	h, due := w.frames.hop(m.first.Outer.Addr(), ring.now)
	if due {
		h.confirm.Store(ring.now + int64(confirmEvery))
	}
	payload := size
	if n > 1 {
		payload = m.total
	}
	if h == nil || due || payload > h.template.MaxPayload() { // exceeds the length field
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

// setLane sets the source port of a lane in a UDP header that a template made. The template's checksum does
// not cover the ports.
func (w *frameWire) setLane(udp []byte, lane uint8) {
	if lane > 0 && int(lane) <= len(w.sockets.lanes) {
		binary.BigEndian.PutUint16(udp, w.sockets.lanes[lane-1].local.Port())
	}
}

// vnet returns the virtio-net header of a superpacket, with offsets in the inner packet.
func (p *Packet) vnet(s *encap.Super) encap.VNetHdr {
	h := encap.VNetHdr{Flags: encap.VNetNeedsCsum, HdrLen: uint16(s.HeaderLen), GSOSize: uint16(p.SegSize),
		CsumStart: uint16(p.CsumStart), CsumOffset: uint16(p.CsumOffset)}
	h.GSOType = encap.GSOType(s.Version, s.Proto)
	if s.Proto == encap.ProtoTCP && p.Bytes()[s.L4+13]&0x80 != 0 { // CWR
		h.GSOType |= encap.VNetGSOECN
	}
	return h
}

package differ

import (
	"encoding/binary"

	"weft/encap"
)

// underlay is what the offsets in an unmutated frame depend on: the outer family.
type underlay bool

// ip is where the outer IP header begins.
const ip = encap.EthernetLen

// l4 is where the UDP header begins, vxlan the VXLAN header, and inner the inner packet.
func (u underlay) l4() int {
	if u {
		return ip + encap.IPv6Len
	}
	return ip + encap.IPv4Len
}
func (u underlay) vxlan() int { return u.l4() + encap.UDPLen }
func (u underlay) inner() int { return u.vxlan() + encap.VXLANOverhead }

// arriving appends a frame from the peer with a packet to a pod of ours: valid one time in two, otherwise
// changed in a few places, mostly such that the checksums before the change are made right again.
func (u underlay) arriving(d dice, b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, u.inner())...)
	b = d.inner(b, d.one(2), peerNet, ourNet, 1430)
	plain := !bool(u) && d.one(4)
	u.frameAround(d, b[at:])
	if d.one(32) {
		v := b[at+u.vxlan():]
		v[d.IntN(4)] |= byte(d.Uint32())
		v[7] = byte(d.IntN(2) * d.IntN(256))
	}
	u.seal(b[at:], plain)
	if d.one(2) {
		return b
	}
	from := u.vxlan()
	switch d.IntN(4) {
	case 0:
		from = ip
	case 1:
		from = u.inner()
	}
	b = d.mutate(b, at+from, 1+d.IntN(3))
	f := b[at:]
	if len(f) < u.inner() {
		return b
	}
	if !d.one(4) && f[u.inner()-1] == 0 && len(f) >= u.inner()+encap.IPv4Len {
		sum4(f[u.inner():])
	}
	if !d.one(8) && from != ip {
		u.lengths(f)
	}
	if !d.one(8) {
		u.seal(f, plain)
	}
	return b
}

// frameAround writes the headers of a valid frame before the inner packet in f[u.inner():], and returns f.
func (u underlay) frameAround(d dice, f []byte) []byte {
	far, own := parseMAC(farMAC), parseMAC(linkMAC)
	copy(f, own[:])
	copy(f[6:], far[:])
	v := f[u.vxlan():]
	v[0], v[6] = 8, vni
	ownV, farV := parseMAC(ownVTEP), parseMAC(farVTEP)
	copy(v[8:], ownV[:])
	copy(v[14:], farV[:])
	v[20], v[21] = 8, 0
	if f[u.inner()]>>4 == 6 {
		v[20], v[21] = 0x86, 0xdd
	}
	l4 := f[u.l4():]
	binary.BigEndian.PutUint16(l4, uint16(1024+d.IntN(64000)))
	binary.BigEndian.PutUint16(l4[2:], vtepPort)
	ecn := byte(0)
	if d.one(3) {
		ecn = byte(d.IntN(4))
	}
	us, peer := outers(bool(u))
	h := f[ip:]
	if u {
		f[12], f[13] = 0x86, 0xdd
		binary.BigEndian.PutUint32(h, 6<<28|uint32(ecn)<<20|uint32(d.IntN(1<<20)))
		h[6], h[7] = encap.ProtoUDP, byte(1+d.IntN(255))
		copy(h[8:], peer.AsSlice())
		copy(h[24:], us.AsSlice())
	} else {
		f[12], f[13] = 8, 0
		h[0], h[1], h[8], h[9] = 0x45, ecn, byte(1+d.IntN(255)), encap.ProtoUDP
		binary.BigEndian.PutUint16(h[4:], uint16(d.Uint32()))
		h[6] = byte(d.IntN(2)) << 6
		copy(h[12:], peer.AsSlice())
		copy(h[16:], us.AsSlice())
	}
	u.lengths(f)
	u.seal(f, false)
	return f
}

// lengths makes the outer lengths of the frame right.
func (u underlay) lengths(f []byte) {
	binary.BigEndian.PutUint16(f[u.l4()+4:], uint16(len(f)-u.l4()))
	if u {
		binary.BigEndian.PutUint16(f[ip+4:], uint16(len(f)-u.l4()))
	} else {
		binary.BigEndian.PutUint16(f[ip+2:], uint16(len(f)-ip))
	}
}

// seal makes the outer checksums right. With plain there is none of UDP.
func (u underlay) seal(f []byte, plain bool) {
	l4 := f[u.l4():]
	l4[6], l4[7] = 0, 0
	if !plain {
		binary.BigEndian.PutUint16(l4[6:], u.udpSum(f))
	}
	if !u {
		sum4(f[ip:])
	}
}

// udpSum is the outer UDP checksum of a frame in whose field there is 0, as it is to be.
func (u underlay) udpSum(f []byte) uint16 {
	sum := ^fold(pseudoSum(f[ip:], bool(u), encap.ProtoUDP, len(f)-u.l4()) + plainSum(f[u.l4():]))
	if sum == 0 {
		return 0xffff
	}
	return sum
}

// leaving appends a packet of a pod of ours to one of the peer's, half of them changed.
func leaving(d dice, b []byte) []byte {
	at := len(b)
	most := 1430
	if d.one(16) {
		most = 3000
	}
	b = d.inner(b, d.one(2), ourNet, peerNet, most)
	if d.one(2) {
		return b
	}
	b = d.mutate(b, at, 1+d.IntN(3))
	if p := b[at:]; !d.one(4) && len(p) >= encap.IPv4Len && p[0]>>4 == 4 {
		sum4(p)
	}
	return b
}

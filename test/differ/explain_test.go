package differ

import (
	"bytes"
	"encoding/binary"

	"weft/encap"
)

// A reason says why weft does with a packet what the kernel's vxlan does not do. docs/deviations.md has each,
// by this name.
type reason string

const (
	notTold reason = "" // both do the same

	stranger     reason = "outer source"
	elsewhere    reason = "outer destination"
	foreignInner reason = "inner source"
	vlanTag      reason = "inner VLAN tag"
	reserved     reason = "reserved bits"
	sourceMAC    reason = "inner source MAC"
	partialSum   reason = "partial checksum"
	unreadable   reason = "inner header"
	udpLength    reason = "outer UDP length"
	rejoined     reason = "joined packets"
)

// A meant is what weft means to do with a frame that arrives: to drop it, or to treat it as the kernel treats
// another one.
type meant struct {
	why  reason
	drop bool
}

// means says what weft means to do with the frame f. It makes of f the frame that the kernel treats in the
// way in which weft is to treat the one that it was. It is written from the RFCs and the documents, not from
// the data plane. raw is what path raw does otherwise than the others.
func (u underlay) means(f []byte, raw bool) (m meant) {
	if len(f) < u.inner() {
		return m
	}
	own, peer := outers(bool(u))
	src, dst := f[ip+12:ip+16], f[ip+16:ip+20]
	if u {
		src, dst = f[ip+8:ip+24], f[ip+24:ip+40]
	}
	switch {
	case !bytes.Equal(src, peer.AsSlice()):
		return meant{stranger, true}
	case !bytes.Equal(dst, own.AsSlice()):
		return meant{elsewhere, true}
	}
	l4 := u.l4()
	if !u {
		l4 = ip + int(f[ip]&15)*4
		if l4 < u.l4() || len(f) < l4+encap.UDPLen+encap.VXLANOverhead {
			return m
		}
	}
	ipEnd := ip + int(binary.BigEndian.Uint16(f[ip+2:]))
	if u {
		ipEnd = l4 + int(binary.BigEndian.Uint16(f[ip+4:]))
	}
	if raw && ipEnd-l4 != int(binary.BigEndian.Uint16(f[l4+4:])) {
		return meant{udpLength, true}
	}
	v := f[l4+encap.UDPLen:]
	inner := v[encap.VXLANOverhead:]
	kind := binary.BigEndian.Uint16(v[20:])
	if kind == 0x8100 || kind == 0x88a8 {
		return meant{vlanTag, true}
	}
	set := func(b []byte, i int, to byte, why reason) {
		if b[i] != to {
			// The outer checksum stays as right or wrong as it was.
			odd := (len(f) - len(b) + i - l4) % 2
			check := f[l4+6:]
			if c := binary.BigEndian.Uint16(check); c != 0 {
				was, is := uint64(b[i])<<(8*(1-odd)), uint64(to)<<(8*(1-odd))
				c = ^fold(uint64(^c) + 0xffff - was + is)
				if c == 0 {
					c = 0xffff
				}
				binary.BigEndian.PutUint16(check, c)
			}
			b[i], m.why = to, why
		}
	}
	if v[0]&8 != 0 {
		set(v, 0, 8, reserved)
		set(v, 1, 0, reserved)
		set(v, 2, 0, reserved)
		set(v, 3, 0, reserved)
		set(v, 7, 0, reserved)
	}
	vtep, far := parseMAC(ownVTEP), parseMAC(farVTEP)
	if mac := v[14:20]; mac[0]&1 != 0 || bytes.Equal(mac, vtep[:]) || bytes.Equal(mac, make([]byte, 6)) {
		for i, x := range far {
			set(v, 14+i, x, sourceMAC)
		}
	}
	if why := innerRefused(inner, kind); why != notTold {
		return meant{why, true}
	}
	if at, sum, ok := completed(inner); ok {
		set(inner, at, byte(sum>>8), partialSum)
		set(inner, at+1, byte(sum), partialSum)
	}
	return m
}

// innerRefused says why weft drops an inner packet from the peer that the kernel's vxlan would pass on to a
// pod.
func innerRefused(p []byte, kind uint16) reason {
	switch {
	case kind == encap.EtherTypeIPv4 && len(p) >= encap.IPv4Len:
		if p[12] != 10 || p[13] != 1 || p[14] != peerNet {
			return foreignInner
		}
		if endless(p) {
			return unreadable
		}
	case kind == encap.EtherTypeIPv6 && len(p) >= encap.IPv6Len:
		if !bytes.Equal(p[8:16], []byte{0xfd, 0, 0, 1, 0, peerNet, 0, 0}) {
			return foreignInner
		}
		if brokenChain(p) {
			return unreadable
		}
	}
	return notTold
}

// endless says whether an IPv4 packet is a fragment that ends beyond 65535 bytes.
func endless(p []byte) bool {
	hlen, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	offset := int(binary.BigEndian.Uint16(p[6:])&0x1fff) * 8
	return offset > 0 && offset+total-hlen > 65535
}

// brokenChain says whether an IPv6 packet has an extension header, among the first eight, that does not end
// in the packet, or a fragment that would end beyond 65535 bytes.
func brokenChain(p []byte) bool {
	if n := encap.IPv6Len + int(binary.BigEndian.Uint16(p[4:])); n <= len(p) {
		p = p[:n]
	}
	kind, at := p[6], encap.IPv6Len
	for range 8 {
		switch kind {
		case 0, 43, 44, 51, 60, 135, 139, 140:
		default:
			return false
		}
		if at+8 > len(p) {
			return true
		}
		n := 8 + int(p[at+1])*8
		switch kind {
		case 51:
			n = 8 + int(p[at+1])*4
		case 44:
			n = 8
			offset := int(binary.BigEndian.Uint16(p[at+2:]) &^ 7)
			if offset+len(p)-at-n > 65535 {
				return true
			}
			if offset != 0 {
				return at+n > len(p)
			}
		}
		if at+n > len(p) {
			return true
		}
		kind = p[at]
		at += n
	}
	return false
}

// completed says where the transport checksum of p is and what it is to be, if it is one that the sender left
// to a device: the sum of the pseudo header alone.
func completed(p []byte) (at int, sum uint16, ok bool) {
	if len(p) < encap.IPv4Len {
		return 0, 0, false
	}
	proto, l4, six, fragment := p[9], int(p[0]&15)*4, false, false
	switch p[0] >> 4 {
	case 4:
		total := int(binary.BigEndian.Uint16(p[2:]))
		if l4 < encap.IPv4Len || total < l4 || total > len(p) {
			return 0, 0, false
		}
		p = p[:total]
		fragment = binary.BigEndian.Uint16(p[6:])&0x3fff != 0
	case 6:
		six = true
		if proto, l4, fragment, ok = transport6(p); !ok {
			return 0, 0, false
		}
		p = p[:encap.IPv6Len+int(binary.BigEndian.Uint16(p[4:]))]
	default:
		return 0, 0, false
	}
	if fragment || l4 > len(p) {
		return 0, 0, false
	}
	seg := p[l4:]
	switch proto {
	case encap.ProtoTCP:
		at = 16
		if len(seg) < 20 {
			return 0, 0, false
		}
	case encap.ProtoUDP:
		at = 6
		if len(seg) < 8 || int(binary.BigEndian.Uint16(seg[4:])) != len(seg) {
			return 0, 0, false
		}
	default:
		return 0, 0, false
	}
	seed := fold(pseudoSum(p, six, proto, len(seg)))
	if binary.BigEndian.Uint16(seg[at:]) != seed {
		return 0, 0, false
	}
	sum = ^fold(plainSum(seg))
	if sum == 0 {
		sum = 0xffff
	}
	return l4 + at, sum, true
}

// transport6 finds the transport header of an IPv6 packet. fragment is true also where the checksum covers
// another address than the header's: in front of a routing header that is not done.
func transport6(p []byte) (proto byte, l4 int, fragment, ok bool) {
	if len(p) < encap.IPv6Len || len(p) < encap.IPv6Len+int(binary.BigEndian.Uint16(p[4:])) || brokenChain(p) {
		return 0, 0, false, false
	}
	p = p[:encap.IPv6Len+int(binary.BigEndian.Uint16(p[4:]))]
	proto, l4 = p[6], encap.IPv6Len
	for range 8 {
		n := 0
		switch proto {
		case 0, 60, 135, 139, 140:
			n = 8 + int(p[l4+1])*8
		case 43:
			n = 8 + int(p[l4+1])*8
			fragment = fragment || p[l4+3] != 0
		case 44:
			n = 8
			fragment = fragment || binary.BigEndian.Uint16(p[l4+2:])&^6 != 0
			if binary.BigEndian.Uint16(p[l4+2:])&^7 != 0 {
				return 0, 0, true, false
			}
		case 51:
			n = 8 + int(p[l4+1])*4
		default:
			return proto, l4, fragment, true
		}
		proto, l4 = p[l4], l4+n
	}
	return proto, l4, fragment, true
}

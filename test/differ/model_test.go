package differ

import (
	"bytes"
	"encoding/binary"

	"weft/encap"
)

// packet is what the model reads of an inner packet.
type packet struct {
	b        []byte // without what is behind it
	six      bool
	src, dst []byte
	tos, ttl byte
	proto    byte
	l4       int // 0: there is no transport header to be read
	df, tail bool
}

// readPacket is false for what is no whole IP packet.
func readPacket(b []byte) (p packet, ok bool) {
	if len(b) < 20 {
		return p, false
	}
	switch b[0] >> 4 {
	case 4:
		hlen, total, frag := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:])), binary.BigEndian.Uint16(b[6:])
		if hlen < 20 || total < hlen || total > len(b) {
			return p, false
		}
		p = packet{b: b[:total], src: b[12:16], dst: b[16:20], tos: b[1], ttl: b[8], proto: b[9], l4: hlen, df: frag&0x4000 != 0, tail: frag&0x1fff != 0}
		if p.tail {
			p.l4 = 0
			if int(frag&0x1fff)*8+total-hlen > 65535 {
				return p, false
			}
		}
		return p, true
	case 6:
		if len(b) < 40 || 40+int(binary.BigEndian.Uint16(b[4:])) > len(b) || brokenChain(b) {
			return p, false
		}
		b = b[:40+int(binary.BigEndian.Uint16(b[4:]))]
		p = packet{b: b, six: true, src: b[8:24], dst: b[24:40], tos: b[0]<<4 | b[1]>>4, ttl: b[7], df: true}
		p.proto, p.l4, p.tail = chain(b)
		return p, true
	}
	return p, false
}

// chain follows up to eight extension headers of a packet whose chain is sound. l4 is 0 behind more, behind a later fragment's header, and without a
// next header.
func chain(b []byte) (proto byte, l4 int, tail bool) {
	proto, l4 = b[6], 40
	for range 8 {
		n := 0
		switch proto {
		case 59:
			return proto, 0, false
		case 0, 43, 60, 135, 139, 140:
			n = 8 + int(b[l4+1])*8
		case 44:
			n = 8
			if binary.BigEndian.Uint16(b[l4+2:])&^7 != 0 {
				return b[l4], 0, true
			}
		case 51:
			n = 8 + int(b[l4+1])*4
		default:
			return proto, l4, false
		}
		proto, l4 = b[l4], l4+n
	}
	return proto, 0, false
}

// within says whether a is of the subnets of a node.
func within(a []byte, number byte) bool {
	if len(a) == 4 {
		return a[0] == 10 && a[1] == 1 && a[2] == number
	}
	return a[0] == 0xfd && a[1]|a[2] == 0 && a[3] == 1 && a[4] == 0 && a[5] == number && a[6]|a[7] == 0
}

// strange says whether a is an address that no router passes on: of this host, this link, a group, or an IPv4 address in an IPv6 header.
func strange(a []byte) bool {
	if len(a) == 4 {
		return a[0] == 0 || a[0] == 127 || a[0] == 169 && a[1] == 254 || a[0]&0xf0 == 0xe0 || string(a) == "\xff\xff\xff\xff"
	}
	const none = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	return string(a[:15]) == none && a[15] <= 1 || a[0] == 0xff || a[0] == 0xfe && a[1]&0xc0 == 0x80 || string(a[:12]) == none[:10]+"\xff\xff"
}

// weftOut is what weft is to do with a packet from its host, and why that is not what flannel does.
func weftOut(b []byte) (did, flannelReason) {
	p, ok := readPacket(b)
	if !ok {
		return did{}, noIP
	}
	if bytes.Equal(p.src, p.dst) {
		return did{}, ownWay
	}
	to := node{}
	for _, n := range nodes {
		if within(p.src, n.number) {
			return did{}, forgedSource
		}
		if within(p.dst, n.number) {
			to = n
		}
	}
	switch {
	case strange(p.dst):
		return did{}, noGroups
	case to == (node{}):
		return did{icmp: p.answer(noRoute, 0)}, noRoute
	case p.six && !to.weft:
		return did{icmp: p.answer(noRoute, 0)}, ipv6ToFlannel
	}
	d, why := did{sent: p.b, to: to.number}, asFlannel
	if p.six {
		why = ipv6ToWeft
	} else if len(p.b) < len(b) {
		why = trailing
	}
	if to.weft && p.tos&3 != 0 {
		d.ecn, why = p.tos&3, outerECN
	}
	if len(p.b) > to.limit {
		why = tooBig
		if p.df {
			return did{icmp: p.answer(tooBig, to.limit)}, why
		}
		l := p.fragments(to.limit)
		if l == nil {
			return did{}, why
		}
		d.sent, d.more = l[0], l[1:]
	}
	return d, why
}

// fragments cuts an IPv4 packet as RFC 791 section 3.2 has it; nil if its options cannot be read.
func (p packet) fragments(limit int) (l [][]byte) {
	hlen := int(p.b[0]&15) * 4
	var copied []byte
	for o := p.b[20:hlen]; len(o) > 0 && o[0] != 0; {
		n := 1
		if o[0] != 1 {
			if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
				return nil
			}
			n = int(o[1])
			if o[0]&0x80 != 0 {
				copied = append(copied, o[:n]...)
			}
		}
		o = o[n:]
	}
	for len(copied)%4 != 0 {
		copied = append(copied, 0)
	}
	frag := binary.BigEndian.Uint16(p.b[6:])
	for at := hlen; at < len(p.b); {
		head := bytes.Clone(p.b[:hlen])
		if at > hlen {
			head = append(bytes.Clone(p.b[:20]), copied...)
			head[0] = 0x40 | byte(len(head)/4)
		}
		n := len(p.b) - at
		field := frag&0x1fff + uint16(at-hlen)/8
		if n > limit-len(head) {
			n = (limit - len(head)) / 8 * 8
			field |= 0x2000
		} else {
			field |= frag & 0x2000
		}
		f := append(head, p.b[at:at+n]...)
		binary.BigEndian.PutUint16(f[6:], field)
		finish4(f)
		l = append(l, f)
		at += n
	}
	return l
}

// answer is the ICMP error about p, or nil where none may be sent: about another error or a redirect, about what may be one, about a later
// fragment, to or about an address that is not one host's, about a packet whose header checksum is wrong.
func (p packet) answer(why flannelReason, mtu int) []byte {
	switch {
	case strange(p.src) || strange(p.dst) || p.tail:
		return nil
	case !p.six && fold(plainSum(p.b[:int(p.b[0]&15)*4])) != 0xffff:
		return nil
	case p.l4 == 0 && p.proto != 59:
		return nil
	case p.l4 > 0 && p.proto == encap.ProtoICMP && !p.six:
		if p.l4 >= len(p.b) || bytes.IndexByte([]byte{3, 4, 5, 11, 12}, p.b[p.l4]) >= 0 {
			return nil
		}
	case p.l4 > 0 && p.proto == encap.ProtoICMPv6 && p.six:
		if p.l4 >= len(p.b) || p.b[p.l4] < 128 || p.b[p.l4] == 137 {
			return nil
		}
	}
	if p.six {
		quote := p.b[:min(len(p.b), 1280-48)]
		b := append(make([]byte, 48), quote...)
		b[0], b[6], b[7] = 0x60, encap.ProtoICMPv6, 64
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)-40))
		copy(b[8:], []byte{0xfd, 0, 0, 1, 0, ourNet})
		copy(b[24:], p.src)
		b[40] = 1
		if why == tooBig {
			b[40] = 2
			binary.BigEndian.PutUint32(b[44:], uint32(max(mtu, 1280)))
		}
		binary.BigEndian.PutUint16(b[42:], ^fold(pseudoSum(b, true, encap.ProtoICMPv6, len(b)-40)+plainSum(b[40:])))
		return b
	}
	quote := p.b[:min(len(p.b), 576-28)]
	b := append(make([]byte, 28), quote...)
	copy(b, []byte{0x45, 0xc0, 0, 0, 0, 0, 0x40, 0, 64, encap.ProtoICMP, 0, 0, 10, 1, ourNet, 0})
	copy(b[16:], p.src)
	b[20] = 3
	if why == tooBig {
		b[21] = 4
		binary.BigEndian.PutUint16(b[26:], uint16(mtu))
	}
	binary.BigEndian.PutUint16(b[22:], ^fold(plainSum(b[20:])))
	finish4(b)
	return b
}

// weftIn is what weft is to do with a datagram from an outer address, and why that is not what flannel does.
func weftIn(from byte, ecn byte, b []byte) (d did, why flannelReason) {
	peer := node{}
	for _, n := range nodes {
		if n.number == from {
			peer = n
		}
	}
	if peer == (node{}) {
		return did{}, unknownSource
	}
	for first := true; ; first = false {
		p, ok := readPacket(b)
		if !ok {
			if first {
				return did{}, noIP
			}
			return d, severalPackets
		}
		out, w := p.arrive(peer.number, ecn)
		switch {
		case out == nil:
		case d.sent == nil:
			d.sent = out
		default:
			d.more = append(d.more, out)
		}
		if why = w; !first {
			why = severalPackets
		} else if why == asFlannel && len(b) > 1472 {
			why = longDatagram
		}
		rest := b[len(p.b):]
		if len(rest) == 0 {
			return d, why
		}
		if !peer.weft || rest[0]>>4 != 4 && rest[0]>>4 != 6 {
			if why == asFlannel {
				why = trailing
			}
			return d, why
		}
		b = rest
	}
}

// arrive judges one packet from a node.
func (p packet) arrive(from, ecn byte) ([]byte, flannelReason) {
	inner := p.tos & 3
	switch {
	case ecn == 3 && inner == 0:
		return nil, outerECN
	case p.ttl == 0:
		return nil, ttlZero
	case strange(p.src), strange(p.dst), bytes.Equal(p.src, p.dst):
		return nil, noGroups
	case !within(p.src, from):
		return nil, innerSource
	case !within(p.dst, ourNet):
		return nil, notOurs
	}
	own := p.dst[len(p.dst)-1] == 0
	for i := 6; own && p.six && i < 15; i++ {
		own = p.dst[i] == 0
	}
	if own && p.proto == encap.ProtoUDP && p.l4 > 0 && len(p.b) >= p.l4+4 && binary.BigEndian.Uint16(p.b[p.l4+2:]) == proxyPort {
		return nil, tunnelInTunnel
	}
	out, why := p.b, asFlannel
	if p.six {
		why = ipv6ToWeft
	}
	if ecn == 3 && inner != 3 || ecn == 1 && inner == 2 { // RFC 6040, figure 4
		why, out = outerECN, bytes.Clone(out)
		setECN(out, ecn)
	}
	if at, sum, ok := completed(out); ok {
		out = bytes.Clone(out)
		binary.BigEndian.PutUint16(out[at:], sum)
		why = completes
	}
	return out, why
}

// setECN writes the field, and changes the header checksum by as much: it stays right, or wrong.
func setECN(b []byte, ecn byte) {
	if b[0]>>4 == 6 {
		b[1] = b[1]&^0x30 | ecn<<4
		return
	}
	was := binary.BigEndian.Uint16(b)
	b[1] = b[1]&^3 | ecn
	binary.BigEndian.PutUint16(b[10:], ^fold(uint64(^binary.BigEndian.Uint16(b[10:]))+uint64(^was)+uint64(binary.BigEndian.Uint16(b))))
}

package differ

import (
	"bytes"
	"encoding/binary"

	"weft/encap"
)

// encapsulation takes packets of pods, and compares the frames that leave: all of them but for what is
// normalised.
func encapsulation(u underlay) direction {
	return direction{
		name: "encapsulation", in: podOf, out: wireOf, make: leaves, refuses: u.refuses,
		keep: func(b []byte) bool { return len(b) > u.inner() && u.datagram(b) && !ofHost(b[u.inner():]) },
		same: u.normalised,
		mark: func(b []byte, n uint64) []byte { return append(b, markInner(ourNet, peerNet, n)...) },
		marked: func(b []byte) (uint64, bool) {
			if len(b) < u.inner() {
				return 0, false
			}
			return markOf(b[u.inner():])
		},
	}
}

// datagram says whether a frame carries UDP to the tunnel's port.
func (u underlay) datagram(f []byte) bool {
	kind, proto := uint16(encap.EtherTypeIPv4), f[ip+9]
	if u {
		kind, proto = encap.EtherTypeIPv6, f[ip+6]
	}
	return binary.BigEndian.Uint16(f[12:]) == kind && proto == encap.ProtoUDP &&
		binary.BigEndian.Uint16(f[u.l4()+2:]) == vtepPort
}

// normalised takes from a frame what may differ, having verified it where that can be done. A fault is
// written into the frame, as what no other frame has.
//
//   - The outer source port is the sender's choice: the kernel takes a hash of the flow, weft one of its own
//     ports.
//   - So are the IPv4 identification of datagrams, and the IPv6 flow label.
//   - The UDP checksum may be missing over IPv4 (RFC 7348 section 5). If it is there it has to be right, as
//     the header's has to be.
//   - DF: the kernel leaves it out, weft sets it (RFC 2003 section 3.1, and it learns path MTUs).
//   - ECN: for an inner CE the kernel sends ECT(0), which was RFC 3168's way, and weft CE, which is RFC
//     6040's.
func (u underlay) normalised(f []byte) []byte {
	if len(f) < u.inner() {
		return f
	}
	l4 := f[u.l4():]
	fault := byte(0)
	if check := binary.BigEndian.Uint16(l4[6:]); check != 0 || bool(u) {
		l4[6], l4[7] = 0, 0
		if u.udpSum(f) != check {
			fault = 1
		}
	}
	h, tos := f[ip:], uint8(0)
	if u {
		tos = h[0]<<4 | h[1]>>4
		h[1] &= 0xf0
		h[2], h[3] = 0, 0
	} else {
		if fold(plainSum(h[:encap.IPv4Len])) != 0xffff {
			fault = 2
		}
		tos = h[1]
		h[4], h[5], h[6] = 0, 0, h[6]&^0x40
		h[10], h[11] = 0, 0
	}
	if inner := f[u.inner():]; len(inner) >= encap.IPv4Len {
		of := inner[1]
		if inner[0]>>4 == 6 {
			of = inner[0]<<4 | inner[1]>>4
		}
		if of&3 == 3 && tos&3 == 2 {
			tos |= 1
		}
	}
	if u {
		h[0], h[1] = h[0]&0xf0|tos>>4, h[1]&0x0f|tos<<4
	} else {
		h[1] = tos
	}
	l4[0], l4[1] = 0, fault
	return f
}

// refuses says why weft does not send a frame that the kernel sends. It is asked of frames, since the host's
// IP stack cuts what is too large before either of them gets it.
func (u underlay) refuses(f []byte) reason {
	p := f[u.inner():]
	kind := binary.BigEndian.Uint16(f[u.inner()-2:])
	switch {
	case kind == encap.EtherTypeIPv4 && len(p) >= encap.IPv4Len && bytes.Equal(p[12:15], []byte{10, 1, peerNet}),
		kind == encap.EtherTypeIPv6 && len(p) >= encap.IPv6Len &&
			bytes.Equal(p[8:16], []byte{0xfd, 0, 0, 1, 0, peerNet, 0, 0}):
		return foreignInner
	case kind == encap.EtherTypeIPv4 && endless(p), kind == encap.EtherTypeIPv6 && brokenChain(p):
		return unreadable
	}
	return notTold
}

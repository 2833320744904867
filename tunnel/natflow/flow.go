package natflow

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"weft/encap"
)

// IANA protocol numbers whose header begins with two ports, beside TCP and UDP.
const (
	protoDCCP    = 33
	protoSCTP    = 132
	protoUDPLite = 136
)

// flow is what a packet's headers say of the conversation that it belongs to.
type flow struct {
	src, dst netip.Addr
	// or the identifier of an echo, twice; or the upper and lower half of the identification of a fragment
	sport, dport   uint16
	proto          uint8
	kind           flowKind
	fin, syn, rest bool // of TCP; rest is the flag RST
	asks           bool // it is not an answer by its own kind, as an echo reply or an ICMP error is
	// for how many seconds it is remembered, if no packet says it: it is not 0 for what the host's table told,
	// see Translated
	left int64
}

type flowKind uint8

const (
	flowWhole    flowKind = iota
	flowFragment          // known by its identification, since a later fragment has no ports
)

// flowOf reads what flow the packet b belongs to. An ICMP error belongs to the flow of the packet that it
// quotes, in the other direction. ok is false if the packet does not say.
func flowOf(b []byte, in *encap.Inner) (f flow, ok bool) {
	f = flow{src: in.Src, dst: in.Dst, proto: in.Proto, asks: true}
	if in.FragOffset != 0 {
		return fragmentOf(b, in), true
	}
	if in.L4 == 0 || in.L4 >= len(b) {
		return f, in.L4 == 0
	}
	l4 := b[in.L4:]
	if in.Proto == encap.ProtoICMP && in.Version == 4 || in.Proto == encap.ProtoICMPv6 && in.Version == 6 {
		return f.icmp(l4)
	}
	return f, f.ports(l4)
}

// fragmentOf is how the fragments of one packet are known to belong together.
func fragmentOf(b []byte, in *encap.Inner) flow {
	f := flow{src: in.Src, dst: in.Dst, proto: in.Proto, kind: flowFragment, asks: true}
	id := in.FragID
	if in.Version == 4 {
		id = uint32(binary.BigEndian.Uint16(b[4:]))
	} else {
		f.proto = 0 // what follows in the first fragment is not known in the others
	}
	f.sport, f.dport = uint16(id>>16), uint16(id)
	return f
}

// ports reads what the transport header says. It is false if that is cut short.
func (f *flow) ports(l4 []byte) bool {
	switch f.proto {
	case encap.ProtoTCP, encap.ProtoUDP, protoSCTP, protoDCCP, protoUDPLite:
		if len(l4) < 4 {
			return false
		}
		f.sport, f.dport = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		if f.proto == encap.ProtoTCP && len(l4) >= 14 {
			f.fin, f.syn, f.rest = l4[13]&1 != 0, l4[13]&2 != 0, l4[13]&4 != 0
		}
	}
	return true
}

// icmp reads an echo, or the packet that an error is about.
func (f flow) icmp(l4 []byte) (flow, bool) {
	if len(l4) < 8 {
		return f, false
	}
	ask, answer := uint8(8), uint8(0)
	if f.proto == encap.ProtoICMPv6 {
		ask, answer = 128, 129
	}
	if t := l4[0]; t == ask || t == answer {
		f.sport = binary.BigEndian.Uint16(l4[4:])
		f.dport, f.asks = f.sport, t == ask
		return f, true
	}
	if !isError(f.proto, l4[0]) {
		return f, true
	}
	quoted, ok := quotedFlow(l4[8:])
	if !ok || quoted.src != f.dst {
		return f, false
	}
	back := quoted.reversed()
	back.asks, back.fin, back.syn, back.rest = false, false, false, false
	return back, true
}

func isError(proto, kind uint8) bool {
	if proto == encap.ProtoICMPv6 {
		return kind < 128
	}
	return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12
}

// quotedFlow is the flow of a packet whose beginning an ICMP error quotes. Extension headers are not
// followed.
func quotedFlow(b []byte) (f flow, ok bool) {
	at := encap.IPv6Len
	switch {
	case len(b) >= encap.IPv4Len && b[0]>>4 == 4:
		src, _ := netip.AddrFromSlice(b[12:16])
		dst, _ := netip.AddrFromSlice(b[16:20])
		f = flow{src: src, dst: dst, proto: b[9]}
		at = int(b[0]&15) * 4
		if at < encap.IPv4Len || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return f, false
		}
	case len(b) >= encap.IPv6Len && b[0]>>4 == 6:
		src, _ := netip.AddrFromSlice(b[8:24])
		dst, _ := netip.AddrFromSlice(b[24:40])
		f = flow{src: src, dst: dst, proto: b[6]}
	default:
		return f, false
	}
	if at > len(b) {
		return f, false
	}
	l4 := b[at:]
	if f.proto == encap.ProtoICMP || f.proto == encap.ProtoICMPv6 {
		if len(l4) < 8 || isError(f.proto, l4[0]) {
			return f, false
		}
		return f.icmp(l4)
	}
	return f, f.ports(l4)
}

// reversed is the flow of the answers.
func (f flow) reversed() flow {
	f.src, f.dst, f.sport, f.dport = f.dst, f.src, f.dport, f.sport
	return f
}

// tag is never 0.
func (f *flow) tag(seed maphash.Seed) uint64 {
	var b [38]byte
	src, dst := f.src.As16(), f.dst.As16()
	copy(b[:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[32:], f.sport)
	binary.BigEndian.PutUint16(b[34:], f.dport)
	b[36], b[37] = f.proto, uint8(f.kind)
	return max(1, maphash.Bytes(seed, b[:]))
}

func (f *flow) opens() bool { return f.syn }
func (f *flow) ends() bool  { return f.fin || f.rest }

// life is for how many seconds the flow is remembered after this packet.
func (f *flow) life() int64 {
	switch {
	case f.left != 0:
		return f.left
	case f.kind == flowFragment:
		return lifeFragment
	case f.proto == encap.ProtoTCP:
		switch {
		case f.rest:
			return lifeReset
		case f.fin:
			return lifeClosing
		case f.syn:
			return lifeHalfOpen
		}
		return lifeTCP
	case f.proto == encap.ProtoUDP || f.proto == protoUDPLite:
		return lifeUDP
	case f.proto == encap.ProtoICMP || f.proto == encap.ProtoICMPv6:
		return lifeEcho
	}
	return lifeOther
}

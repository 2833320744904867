package natflow

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"weft/encap"
)

// Protocols besides TCP and UDP whose header begins with two ports.
const (
	protoDCCP    = 33
	protoSCTP    = 132
	protoUDPLite = 136
)

// flow identifies the flow of a packet, and has the packet's TCP flags.
type flow struct {
	src, dst netip.Addr
	// Ports; an echo has its identifier in both, a fragment the upper and lower half of its identification.
	sport, dport  uint16
	proto         uint8
	kind          flowKind
	fin, syn, rst bool // TCP flags
	asks          bool // false if the packet is a reply by its type: an echo reply or an ICMP error
	// left, if not 0, is the life in seconds of a flow that was imported; see Translated.
	left int64
}

type flowKind uint8

const (
	flowWhole    flowKind = iota
	flowFragment          // identified by its identification, since only the first fragment has ports
)

// flowOf returns the flow of packet b. An ICMP error belongs to the reverse flow of the packet that it
// quotes. ok is false if the packet is cut short.
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

// fragmentOf returns the flow that all fragments of one packet share.
func fragmentOf(b []byte, in *encap.Inner) flow {
	f := flow{src: in.Src, dst: in.Dst, proto: in.Proto, kind: flowFragment, asks: true}
	id := in.FragID
	if in.Version == 4 {
		id = uint32(binary.BigEndian.Uint16(b[4:]))
	} else {
		f.proto = 0 // the other fragments do not have the first one's next header
	}
	f.sport, f.dport = uint16(id>>16), uint16(id)
	return f
}

// ports reads the ports and TCP flags. It returns false if the header is cut short.
func (f *flow) ports(l4 []byte) bool {
	switch f.proto {
	case encap.ProtoTCP, encap.ProtoUDP, protoSCTP, protoDCCP, protoUDPLite:
		if len(l4) < 4 {
			return false
		}
		f.sport, f.dport = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
		if f.proto == encap.ProtoTCP && len(l4) >= 14 {
			f.fin, f.syn, f.rst = l4[13]&1 != 0, l4[13]&2 != 0, l4[13]&4 != 0
		}
	}
	return true
}

// icmp returns the flow of an echo, or of the packet that an ICMP error quotes.
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
	back.asks, back.fin, back.syn, back.rst = false, false, false, false
	return back, true
}

func isError(proto, kind uint8) bool {
	if proto == encap.ProtoICMPv6 {
		return kind < 128
	}
	return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12
}

// quotedFlow returns the flow of the packet that an ICMP error quotes. It does not follow extension headers.
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

// reversed returns the flow of the replies.
func (f flow) reversed() flow {
	f.src, f.dst, f.sport, f.dport = f.dst, f.src, f.dport, f.sport
	return f
}

// tag returns the keyed hash of the flow. It is never 0.
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
func (f *flow) ends() bool  { return f.fin || f.rst }

// life returns how many seconds the flow is kept after this packet.
func (f *flow) life() int64 {
	switch {
	case f.left != 0:
		return f.left
	case f.kind == flowFragment:
		return lifeFragment
	case f.proto == encap.ProtoTCP:
		switch {
		case f.rst:
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

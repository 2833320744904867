package port

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// frameFilter returns a classic BPF program that passes the tunnel's unfragmented datagrams to local: frames
// to this host without a VLAN tag, IPv4 without options and fragment fields or IPv6, directly followed by
// UDP. All other frames go through the IP stack, and the ingress filter must not drop them.
//
// Only a share of the packets of throttled sources passes.
func frameFilter(local netip.AddrPort, held ...ThrottledSource) ([]unix.SockFilter, error) {
	const ip = encap.EthernetLen
	type check struct { // size bytes at off, masked by mask unless it is 0, equal val
		off, size int
		mask, val uint32
	}
	var checks []check
	udp := uint32(ip + encap.IPv4Len)
	if a := local.Addr(); a.Is4() {
		b := a.As4()
		checks = []check{
			{12, 2, 0, encap.EtherTypeIPv4},
			{ip, 1, 0, 0x45},
			{ip + 6, 2, 0x3fff, 0}, // more fragments, and the offset
			{ip + 9, 1, 0, encap.ProtoUDP},
			{ip + 16, 4, 0, binary.BigEndian.Uint32(b[:])},
		}
	} else {
		udp = ip + encap.IPv6Len
		b := a.As16()
		checks = []check{
			{12, 2, 0, encap.EtherTypeIPv6},
			{ip, 1, 0xf0, 0x60},
			{ip + 6, 1, 0, encap.ProtoUDP},
		}
		for i := range 4 {
			checks = append(checks, check{ip + 24 + 4*i, 4, 0, binary.BigEndian.Uint32(b[4*i:])})
		}
	}
	checks = append(checks, check{int(udp) + 2, 2, 0, uint32(local.Port())})

	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType}, // PACKET_HOST is 0
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_HOST},
		bpf.LoadExtension{Num: bpf.ExtVLANTagPresent},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0},
	}
	for _, c := range checks {
		program = append(program, bpf.LoadAbsolute{Off: uint32(c.off), Size: c.size})
		if c.mask != 0 {
			program = append(program, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.val})
	}
	checked := len(program)
	program = append(program, throttling(ip, local.Addr().Is6(), held)...)
	program = append(program, bpf.RetConstant{Val: wholePacket}, bpf.RetConstant{Val: 0})
	for i, in := range program[:checked] { // every mismatch goes to the last instruction
		if j, ok := in.(bpf.JumpIf); ok {
			j.SkipTrue = uint8(len(program) - 2 - i)
			program[i] = j
		}
	}
	return assemble(program)
}

package port

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// filterVM runs the filter of a port at local as the kernel would. The machine in golang.org/x/net
// has no extensions, so what they would load is put in their place: the packet type of a frame,
// and whether a tag was taken off it.
func filterVM(tb testing.TB, local netip.AddrPort, packetType uint32, tagged bool) *bpf.VM {
	tb.Helper()
	return holdingVM(tb, local, packetType, tagged, 0)
}

// holdingVM is filterVM of a port that holds sources back, with that random number.
func holdingVM(tb testing.TB, local netip.AddrPort, packetType uint32, tagged bool, random uint32,
	held ...ThrottledSource) *bpf.VM {
	tb.Helper()
	filter, err := frameFilter(local, held...)
	if err != nil {
		tb.Fatal(err)
	}
	raw := make([]bpf.RawInstruction, len(filter))
	for i, f := range filter {
		raw[i] = bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	program, whole := bpf.Disassemble(raw)
	if !whole {
		tb.Fatalf("not a program: %v", program)
	}
	for i, in := range program {
		switch in {
		case bpf.LoadExtension{Num: bpf.ExtRand}:
			program[i] = bpf.LoadConstant{Dst: bpf.RegA, Val: random}
		case bpf.LoadExtension{Num: bpf.ExtType}:
			program[i] = bpf.LoadConstant{Dst: bpf.RegA, Val: packetType}
		case bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}:
			program[i] = bpf.LoadConstant{Dst: bpf.RegA}
			if tagged {
				program[i] = bpf.LoadConstant{Dst: bpf.RegA, Val: 1}
			}
		}
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		tb.Fatal(err)
	}
	return vm
}

// passes says whether the filter passes a frame, which it then has to do with all of its bytes.
func passes(tb testing.TB, vm *bpf.VM, frame []byte) bool {
	tb.Helper()
	n, err := vm.Run(frame)
	if err != nil {
		tb.Fatal(err)
	}
	if n != 0 && n < encap.VNetHdrLen+len(frame) {
		tb.Fatalf("%d bytes of a frame of %d pass", n, len(frame))
	}
	return n != 0
}

// TestFrameFilter runs the filter over frames of every kind.
func TestFrameFilter(t *testing.T) {
	put := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return b }
	}
	cut := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }
	same := func(b []byte) []byte { return b }
	vlan := func(b []byte) []byte { return bytes.Join([][]byte{b[:12], {0x81, 0, 0, 5}, b[12:]}, nil) }
	for _, tt := range []struct {
		name   string
		six    int
		change func([]byte) []byte
		want   bool
	}{
		{"IPv4", 0, same, true}, {"IPv6", 1, same, true},
		// the table judges
		{"other source", 0, put(26, 203, 0, 113, 9), true}, {"other source, IPv6", 1, put(22, 0x3f), true},
		{"any source port", 0, put(34, 1, 2), true}, {"any, IPv6", 1, put(54, 1, 2), true},
		{"to any link address", 0, put(0, 2, 9, 9, 9, 9, 9), true}, // what is not ours has another packet type
		{"DSCP and ECN", 0, put(15, 0xbb), true},
		{"traffic class and flow label", 1, put(14, 0x6f, 0xff, 0xff, 0xff), true},
		{"hop limit 1", 1, put(21, 1), true}, {"TTL 0", 0, put(22, 0), true}, // as a socket: that is for routers
		{"may be fragmented", 0, put(20, 0, 0), true}, {"the reserved bit", 0, put(20, 0xc0, 0), true},
		{"wrong header checksum", 0, put(24, 1, 2), true}, // looked at later
		{"no payload", 0, cut(42), true}, {"no payload, IPv6", 1, cut(62), true},

		{"another port", 0, put(36, 0x20, 0x5e), false}, {"another port, IPv6", 1, put(56, 0x20, 0x5e), false},
		{"another address", 0, put(33, 3), false}, {"another network", 0, put(30, 193), false},
		{"another address, IPv6", 1, put(53, 3), false}, {"another network, IPv6", 1, put(38, 0x21), false},
		{"another subnet, IPv6", 1, put(43, 1), false}, {"and another", 1, put(47, 1), false},
		{"broadcast", 0, put(30, 255, 255, 255, 255), false},
		{"first fragment", 0, put(20, 0x20, 0), false}, {"middle fragment", 0, put(20, 0x20, 5), false},
		{"last fragment", 0, put(20, 0, 5), false},
		{"fragment of high offset", 0, put(20, 0x1f, 0), false}, {"fragment, IPv6", 1, put(20, 44), false},
		{"hop-by-hop options", 1, put(20, 0), false}, {"routing header", 1, put(20, 43), false},
		{"ESP", 1, put(20, 50), false},
		{"options", 0, put(14, 0x46), false}, {"a short header", 0, put(14, 0x44), false},
		{"version 6 in IPv4", 0, put(14, 0x65), false},
		{"version 4 in IPv6", 1, put(14, 0x45), false},
		{"TCP", 0, put(23, 6), false}, {"ICMP", 0, put(23, 1), false}, {"UDP-Lite", 0, put(23, 136), false},
		{"TCP, IPv6", 1, put(20, 6), false},
		{"ARP", 0, put(12, 8, 6), false}, {"LLDP", 0, put(12, 0x88, 0xcc), false},
		{"MPLS", 0, put(12, 0x88, 0x47), false},
		{"VLAN", 0, vlan, false}, {"VLAN, IPv6", 1, vlan, false}, {"QinQ", 0, put(12, 0x88, 0xa8), false},
		{"802.3", 0, put(12, 0, 60), false},
		{"IPv6 on a port of IPv4", 0, func([]byte) []byte { return frameOf(t, 1, 0, nil) }, false},
		{"IPv4 on a port of IPv6", 1, func([]byte) []byte { return frameOf(t, 0, 0, nil) }, false},
		{"empty", 0, cut(0), false}, {"half an Ethernet header", 0, cut(13), false},
		{"no IP header", 0, cut(14), false},
		{"half an IPv4 header", 0, cut(32), false}, {"half an IPv6 header", 1, cut(53), false},
		{"no UDP header", 0, cut(34), false}, {"half a UDP header", 0, cut(37), false},
		{"half of it, IPv6", 1, cut(57), false},
	} {
		frame := tt.change(frameOf(t, tt.six, 0, []byte("weft")))
		if got := passes(t, filterVM(t, ours[tt.six], unix.PACKET_HOST, false), frame); got != tt.want {
			t.Errorf("%s: passes: %t, want %t", tt.name, got, tt.want)
		}
	}
	for six := range 2 {
		frame := frameOf(t, six, 0, []byte("weft"))
		for _, to := range []uint32{unix.PACKET_BROADCAST, unix.PACKET_MULTICAST, unix.PACKET_OTHERHOST,
			unix.PACKET_OUTGOING, unix.PACKET_LOOPBACK} {
			if passes(t, filterVM(t, ours[six], to, false), frame) {
				t.Errorf("IPv%d: a frame of packet type %d passes", 4+2*six, to)
			}
		}
		if passes(t, filterVM(t, ours[six], unix.PACKET_HOST, true), frame) {
			t.Errorf("IPv%d: a frame whose tag was taken off passes", 4+2*six)
		}
	}
}

// wanted says slowly what the filter has to pass: what a socket bound to local would get, if nothing
// is between the headers, and the frame is long enough to say so.
func wanted(b []byte, local netip.AddrPort) bool {
	if len(b) < 14+20+4 {
		return false
	}
	ip, udp := b[14:], 20
	var dst netip.Addr
	if local.Addr().Is4() {
		if binary.BigEndian.Uint16(b[12:]) != 0x0800 || ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])<<2 != 0 ||
			ip[9] != 17 {
			return false
		}
		dst = netip.AddrFrom4([4]byte(ip[16:]))
	} else {
		udp = 40
		if len(b) < 14+40+4 || binary.BigEndian.Uint16(b[12:]) != 0x86dd || ip[0]>>4 != 6 || ip[6] != 17 {
			return false
		}
		dst = netip.AddrFrom16([16]byte(ip[24:]))
	}
	return netip.AddrPortFrom(dst, binary.BigEndian.Uint16(ip[udp+2:])) == local
}

// TestFrameFilterAgainstSlow changes frames at random, most of them in a place that matters.
func TestFrameFilterAgainstSlow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 285))
	for six := range 2 {
		vm, passed := filterVM(t, ours[six], unix.PACKET_HOST, false), 0
		for range 20_000 {
			b := frameOf(t, six, 0, []byte("weft"))
			for range rnd.IntN(3) {
				b[rnd.IntN(frameHead(six))] ^= 1 << rnd.IntN(8)
			}
			want := wanted(b, ours[six])
			if got := passes(t, vm, b); got != want {
				t.Fatalf("passes: %t, want %t: %x", got, want, b)
			}
			if want {
				passed++
			}
		}
		if passed < 1000 || passed > 19_000 {
			t.Errorf("%d of 20000 pass: that tests little", passed)
		}
	}
}

// TestHeldSources: of a source that is held back so large a share passes as the random numbers decide, and of
// all others everything. What is not for us never passes.
func TestHeldSources(t *testing.T) {
	for six := range 2 {
		others := [2][2]string{{"192.0.2.3", "198.51.100.2"}, {"2001:db8::3", "2001:db8:1::2"}}[six]
		for _, tt := range []struct {
			held   []ThrottledSource
			random uint32
			want   bool
		}{
			{nil, 1 << 31, true},
			{[]ThrottledSource{{theirs[six].Addr(), 0.5}}, 1<<31 - 9, true},
			{[]ThrottledSource{{theirs[six].Addr(), 0.5}}, 1<<31 + 9, false},
			{[]ThrottledSource{{theirs[six].Addr(), 0}}, 0, false},
			{[]ThrottledSource{{addr(others[0]), 0}, {addr(others[1]), 0}}, 1 << 31, true},
			{[]ThrottledSource{{addr(others[0]), 0}, {theirs[six].Addr(), 0.25}, {addr(others[1]), 1}}, 1<<30 + 9, false},
			{[]ThrottledSource{{addr(others[0]), 0}, {theirs[six].Addr(), 0.25}, {addr(others[1]), 1}}, 1<<30 - 9, true},
		} {
			vm := holdingVM(t, ours[six], unix.PACKET_HOST, false, tt.random, tt.held...)
			frame := frameOf(t, six, 0, []byte("weft"))
			if got := passes(t, vm, frame); got != tt.want {
				t.Errorf("%v, at %#x: passes %t", tt.held, tt.random, got)
			}
			frame[frameHead(six)-6]++ // another port
			if passes(t, vm, frame) {
				t.Errorf("%v: what is for another port passes", tt.held)
			}
		}
	}
}

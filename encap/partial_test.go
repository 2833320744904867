package encap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

// The kernel leaves inner UDP and TCP checksums to the device, and computes
// the outer one as if the inner were already complete.
func TestCompleteKernelPackets(t *testing.T) {
	all := kernelPackets(t)
	for name, l4 := range map[string]int{"vxlan-v4-udp": 20, "vxlan-v4-tcp-syn": 20, "vxlan-v6-udp": 40} {
		outer := all[name]
		_, payload, err := parseOuter(outer)
		if err != nil {
			t.Fatal(err)
		}
		_, inner, err := ParseVXLAN(payload)
		if err != nil {
			t.Fatal(err)
		}
		in, err := ParseInner(inner)
		if err != nil {
			t.Fatal(err)
		}
		start, offset, partial := PartialChecksum(inner, in)
		if !partial || start != l4 {
			t.Fatalf("%s: start %d, partial %t", name, start, partial)
		}
		if ChecksumOK(inner, in) {
			t.Errorf("%s: a partial checksum passes for complete", name)
		}
		if !completeChecksum(inner, start, offset) {
			t.Errorf("%s: not completed", name)
		}
		if !slowTransportOK(inner, l4, in.Proto) || !ChecksumOK(inner, in) {
			t.Errorf("%s: completed wrongly", name)
		}
		out, err := ParseInner(outer)
		if err != nil {
			t.Fatal(err)
		}
		if !ChecksumOK(outer, out) {
			t.Errorf("%s: the outer checksum does not cover the completed packet", name)
		}
	}
	for _, name := range []string{"vxlan-v4-icmp", "vxlan-v6-icmp"} {
		outer := all[name] // ICMP has no partial checksum, so the outer one is
		in, err := ParseInner(outer)
		if err != nil {
			t.Fatal(err)
		}
		if start, offset, partial := PartialChecksum(outer, in); !partial ||
			!completeChecksum(outer, start, offset) {
			t.Errorf("%s: outer checksum not partial", name)
		}
		if !ChecksumOK(outer, in) {
			t.Errorf("%s: outer checksum completed wrongly", name)
		}
	}
}

func TestPartialEverySize(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			for _, n := range []int{0, 1, 2, 3, 17, 100, 127, 128, 1399, 1400, 40000, 65400} {
				name := fmt.Sprintf("six=%t proto=%d n=%d", six, proto, n)
				b, want := transport(six, proto, n, false), transport(six, proto, n, true)
				in, err := ParseInner(b)
				if err != nil {
					t.Fatal(err)
				}
				start, offset, partial := PartialChecksum(append(b, 1, 2, 3), in) // trailing bytes do not count
				if !partial {
					t.Errorf("%s: not seen as partial", name)
					continue
				}
				if !completeChecksum(b, start, offset) || !bytes.Equal(b, want) {
					t.Errorf("%s: completed to %x, want %x", name, b[start:start+20], want[start:start+20])
				}
				// Complete now, so it stays as it is.
				if _, _, partial := PartialChecksum(b, in); partial {
					t.Errorf("%s: still partial", name)
				}
				if completeChecksum(b, start, offset) || !bytes.Equal(b, want) {
					t.Errorf("%s: completed twice", name)
				}
			}
		}
	}
}

// One complete checksum in 65535 looks partial. Completing gives the same value.
func TestCompleteChecksumThatLooksPartial(t *testing.T) {
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			found := false
			b := transport(six, proto, 2, true)
			in, err := ParseInner(b)
			if err != nil {
				t.Fatal(err)
			}
			offset := ChecksumOffsetTCP
			if proto == ProtoUDP {
				offset = ChecksumOffsetUDP
			}
			for v := range 1 << 16 { // the payload that makes them equal
				b = transport(six, proto, 2, false)
				seed := bytes.Clone(b[in.L4+offset:][:2])
				binary.BigEndian.PutUint16(b[len(b)-2:], uint16(v))
				FinishChecksum(b, in.L4, offset)
				if !slowTransportOK(b, in.L4, proto) {
					t.Fatal("finished wrongly")
				}
				if !bytes.Equal(b[in.L4+offset:][:2], seed) {
					continue
				}
				found = true
				whole := bytes.Clone(b)
				start, offset, partial := PartialChecksum(b, in)
				if !partial || !ChecksumOK(b, in) {
					t.Fatal("it should look partial, and verify")
				}
				completeChecksum(b, start, offset)
				if !bytes.Equal(b, whole) {
					t.Errorf("six=%t proto=%d payload %04x: changed %x to %x", six, proto, v, whole, b)
				}
			}
			if !found {
				t.Errorf("six=%t proto=%d: no such packet found", six, proto)
			}
		}
	}
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	for v := range 1 << 16 {
		b := transport(false, ProtoUDP, 2, false)
		binary.BigEndian.PutUint16(b[28:], uint16(v))
		completeChecksum(b, 20, ChecksumOffsetUDP)
		if b[26] == 0 && b[27] == 0 {
			t.Fatalf("payload %04x: checksum 0, which means none", v)
		}
		if !slowTransportOK(b, 20, ProtoUDP) {
			t.Fatalf("payload %04x: wrong checksum", v)
		}
	}
}

func TestNotPartial(t *testing.T) {
	with := func(b []byte, at int, v ...byte) []byte {
		copy(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"udp4 without checksum": with(transport(false, ProtoUDP, 9, false), 26, 0, 0),
		"udp4 first fragment":   with(transport(false, ProtoUDP, 9, false), 6, 0x20, 0),
		"udp4 later fragment":   with(transport(false, ProtoUDP, 9, false), 6, 0, 2),
		"udp6 first fragment": extension(transport(true, ProtoUDP, 9, false), protoFragment,
			[]byte{0, 0, 0, 1, 0, 0, 0, 1}),
		"udp6 routed": extension(transport(true, ProtoUDP, 9, false), protoRouting,
			[]byte{0, 0, 4, 1, 0, 0, 0, 0}),
		"udp length too short": with(transport(false, ProtoUDP, 9, false), 24, 0, 16),
		"tcp header cut":       packet(false, ProtoTCP, make([]byte, 19)),
		"udp header cut":       packet(true, ProtoUDP, make([]byte, 7)),
		"icmp":                 packet(false, ProtoICMP, make([]byte, 40)),
		"complete tcp":         transport(true, ProtoTCP, 9, true),
	} {
		in, err := ParseInner(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, partial := PartialChecksum(b, in); partial {
			t.Errorf("%s: seen as partial", name)
		}
		if want := name == "complete tcp" || name == "udp4 without checksum"; ChecksumOK(b, in) != want {
			t.Errorf("%s: ChecksumOK is %t", name, !want)
		}
	}
	for name, b := range map[string][]byte{ // right, but not to be verified from here
		"fragment": with(transport(false, ProtoTCP, 9, true), 6, 0x20, 0),
		"routed":   extension(transport(true, ProtoTCP, 9, true), protoRouting, []byte{0, 0, 4, 1, 0, 0, 0, 0}),
	} {
		if in, err := ParseInner(b); err != nil || ChecksumOK(b, in) {
			t.Errorf("%s: %v, verified", name, err)
		}
	}
	cut := packet(false, ProtoTCP, make([]byte, 19)) // too short, and seeded
	binary.BigEndian.PutUint16(cut[20+ChecksumOffsetTCP:], slowSum(cut[12:20], ProtoTCP+19))
	if in, err := ParseInner(cut); err != nil {
		t.Error(err)
	} else if _, _, partial := PartialChecksum(cut, in); partial {
		t.Error("a cut TCP header is partial")
	}
	// An extension header in between does not hide it.
	b := extension(transport(true, ProtoTCP, 9, false), protoDestOpts, []byte{0, 0, 1, 4, 0, 0, 0, 0})
	in, err := ParseInner(b)
	if err != nil {
		t.Fatal(err)
	}
	if start, _, partial := PartialChecksum(b, in); !partial || start != 48 {
		t.Errorf("behind an extension header: start %d, partial %t", start, partial)
	}
}

func TestChecksumBounds(t *testing.T) {
	b := transport(false, ProtoUDP, 9, false)
	was := bytes.Clone(b)
	for _, start := range []int{-1, len(b) - 1, len(b), len(b) + 1, math.MaxInt, math.MinInt} {
		for _, offset := range []int{-1, 0, 6, 16, math.MaxInt} {
			if FinishChecksum(b, start, offset) || completeChecksum(b, start, offset) {
				t.Errorf("start %d, offset %d is outside", start, offset)
			}
		}
	}
	if FinishChecksum(b, 20, len(b)-21) || !bytes.Equal(b, was) {
		t.Error("bytes changed")
	}
	if _, _, partial := PartialChecksum(b[:20], Inner{L4: 20, TotalLen: len(b), Proto: ProtoUDP}); partial {
		t.Error("a header that is not there is partial")
	}
}

func FuzzPartialChecksum(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b)
	}
	for _, six := range []bool{false, true} {
		f.Add(transport(six, ProtoTCP, 5, false))
		f.Add(transport(six, ProtoUDP, 5, true))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := ParseInner(b)
		if err != nil {
			return
		}
		b = b[:in.TotalLen]
		start, offset, partial := PartialChecksum(b, in)
		if !partial {
			return
		}
		if !completeChecksum(b, start, offset) {
			t.Fatal("partial, but not completed")
		}
		if !slowTransportOK(b, start, in.Proto) || !ChecksumOK(b, in) {
			t.Fatalf("completed wrongly: %x", b)
		}
		once := bytes.Clone(b)
		completeChecksum(b, start, offset)
		if !bytes.Equal(b, once) {
			t.Fatal("the second time changed it")
		}
	})
}

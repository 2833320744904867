package encap

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestSumEqualsReferenceAtEveryLengthAndAlignment(t *testing.T) {
	r := testRand(t)
	data := randomBytes(r, 1024+16)
	for shift := range 16 {
		for n := range 1025 {
			b := data[shift : shift+n]
			initial := r.Uint64() >> (r.Uint32() % 64)
			if got, want := Fold(Sum(b, initial)), slowSum(b, initial); got%0xffff != want%0xffff {
				t.Fatalf("shift %d length %d initial %#x: sum %#04x, want %#04x", shift, n, initial, got, want)
			}
		}
	}
}

// The carries are what an unrolled loop gets wrong, and random data has few.
func TestSumCarries(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 300, 65535} {
		for _, initial := range []uint64{0, 1, 0xffff, 0x10000, 1<<32 - 1, 1<<64 - 1} {
			ones := bytes.Repeat([]byte{0xff}, n)
			if got, want := Fold(Sum(ones, initial)), slowSum(ones, initial); got != want {
				t.Errorf("%d × ff, initial %#x: sum %#04x, want %#04x", n, initial, got, want)
			}
			for _, at := range []int{0, n / 2, n - 1} {
				if at < 0 || at >= n {
					continue
				}
				ones[at] = 0
				if got, want := Fold(Sum(ones, initial)), slowSum(ones, initial); got != want {
					t.Errorf("%d × ff, 0 at %d, initial %#x: sum %#04x, want %#04x", n, at, initial, got, want)
				}
				ones[at] = 0xff
			}
		}
	}
}

func TestFoldIsZeroOnlyForZero(t *testing.T) {
	for _, v := range []uint64{1, 0xffff, 0x1fffe, 0xffff_0000, 0xffff_ffff, 1 << 63, 1<<64 - 1} {
		if got, want := Fold(v), uint16((v-1)%0xffff+1); got != want {
			t.Errorf("Fold(%#x) = %#04x, want %#04x", v, got, want)
		}
	}
	if Fold(0) != 0 {
		t.Error("Fold(0) is not 0")
	}
}

func TestChecksumKnownHeaders(t *testing.T) {
	// The example of RFC 1071 §3, and a header that Linux made.
	if got := Fold(Sum([]byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}, 0)); got != 0xddf2 {
		t.Errorf("RFC 1071 example: sum %#04x, want 0xddf2", got)
	}
	h := kernelPackets(t)["vxlan-v4-icmp"][:IPv4Len]
	if !headerChecksumOK(h) {
		t.Error("a kernel's header does not verify")
	}
	h[10], h[11] = 0, 0
	if got := Checksum(h); got != 0xeec7 {
		t.Errorf("checksum %#04x, want 0xeec7", got)
	}
	long := append([]byte{0x46}, h[1:]...) // claims options that are not there
	if headerChecksumOK(h) || headerChecksumOK(h[:19]) || headerChecksumOK(long[:20:20]) ||
		headerChecksumOK(nil) {
		t.Error("a wrong or cut header verifies")
	}
}

// RFC 1624 §4 has the case that equation 2 of RFC 1141 gets wrong.
func TestUpdate16(t *testing.T) {
	if got := Update16(0xdd2f, 0x5555, 0x3285); got != 0x0000 {
		t.Errorf("RFC 1624 §4: %#04x, want 0x0000", got)
	}
	r := testRand(t)
	for range 20000 {
		h := randomBytes(r, 20)
		h[0] = 0x45 // no header is all zero, which is where update and recomputation differ
		fixHeader(h)
		at := 2 * (1 + r.IntN(9))
		if at == 10 {
			continue
		}
		word := uint16(r.Uint32())
		if r.IntN(4) == 0 {
			word = 0xffff * uint16(r.IntN(2))
		}
		got := Update16(binary.BigEndian.Uint16(h[10:]), binary.BigEndian.Uint16(h[at:]), word)
		binary.BigEndian.PutUint16(h[at:], word)
		fixHeader(h)
		if want := binary.BigEndian.Uint16(h[10:]); got != want {
			t.Fatalf("header %x: updated %#04x, recomputed %#04x", h, got, want)
		}
	}
}

func TestPseudoHeaderSum(t *testing.T) {
	// IPv4: source, destination, 0, protocol, length; IPv6: 32-bit length, 0, next header.
	four := unhex(t, "0a010102 0a010202 00 11 0123")
	six := unhex(t, "20010db8000100000000000000000002 20010db8000200000000000000000002 00012345 000000 06")
	if got, want := Fold(PseudoHeaderSum(ip("10.1.1.2"), ip("10.1.2.2"), ProtoUDP, 0x123)),
		slowSum(four, 0); got != want {
		t.Errorf("IPv4: %#04x, want %#04x", got, want)
	}
	if got, want := Fold(PseudoHeaderSum(ip("2001:db8:1::2"), ip("2001:db8:2::2"), ProtoTCP, 0x12345)),
		slowSum(six, 0); got != want {
		t.Errorf("IPv6: %#04x, want %#04x", got, want)
	}
	if got, want := Fold(PseudoHeaderSumRaw(four[:8], ProtoUDP, 0x123)), slowSum(four, 0); got != want {
		t.Errorf("raw: %#04x, want %#04x", got, want)
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{1}, uint64(1<<64-1))
	f.Add(bytes.Repeat([]byte{0xff}, 200), uint64(0xffff))
	f.Fuzz(func(t *testing.T, b []byte, initial uint64) {
		if got, want := Fold(Sum(b, initial)), slowSum(b, initial); got != want {
			t.Errorf("sum %#04x, want %#04x", got, want)
		}
	})
}

package encap

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

func TestVNetHdr(t *testing.T) {
	h := VNetHdr{Flags: VNetNeedsCsum, GSOType: VNetGSOTCPv4 | VNetGSOECN, HdrLen: 54, GSOSize: 1398,
		CsumStart: 20, CsumOffset: 16}
	want := []byte{1, 0x81, 54, 0, 0x76, 0x05, 20, 0, 16, 0}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		for i := 2; i < len(want); i += 2 {
			slices.Reverse(want[i : i+2])
		}
	}
	var b [VNetHdrLen]byte
	h.Put(b[:])
	if !slices.Equal(b[:], want) {
		t.Errorf("%x, want %x", b, want)
	}
	if got, err := ParseVNetHdr(append(b[:], 9)); got != h || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseVNetHdr(b[:9]); !errors.Is(err, ErrShort) {
		t.Errorf("9 bytes: %v", err)
	}
}

func FuzzVNetHdr(f *testing.F) {
	f.Add([]byte{1, 0x81, 54, 0, 0x76, 0x05, 20, 0, 16, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseVNetHdr(b)
		if err != nil {
			if !errors.Is(err, ErrShort) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		var out [VNetHdrLen]byte
		if h.Put(out[:]); !slices.Equal(out[:], b[:VNetHdrLen]) {
			t.Fatalf("%x becomes %x", b, out)
		}
	})
}

func TestGSONoAllocations(t *testing.T) {
	dst, hdr := make([]byte, 0, MaxSegmentHeader), make([]byte, VNetHdrLen)
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{ProtoTCP, ProtoUDP} {
			pkts := stream(six, proto, 100, 3)
			super := slices.Concat(pkts[0], make([]byte, 2000))
			slowFix(super, true)
			in, err := ParseInner(super)
			if err != nil {
				t.Fatal(err)
			}
			var ins [3]Inner
			for i, p := range pkts {
				ins[i], _ = ParseInner(p)
			}
			head, run := slices.Clone(pkts[0]), Run{}
			if n := testing.AllocsPerRun(100, func() {
				s, _ := ParseSuper(super, in, 99)
				for k := range s.Segments {
					s.AppendHeader(dst, super, k, k%2 == 0)
					s.SegmentLen(k)
				}
				_, _ = ParseSuper(super[:100], in, 99)
				_, _ = ParseSuper(super, in, 0)
				copy(head, pkts[0])
				run.Start(pkts[0], ins[0], false)
				run.Add(pkts[1], ins[1], false)
				run.Add(pkts[1], ins[1], false)
				run.Add(pkts[2], ins[2], true)
				run.Finish(head).Put(hdr)
				_, _ = ParseVNetHdr(hdr)
			}); n != 0 {
				t.Errorf("six %t, proto %d: %v allocations", six, proto, n)
			}
		}
	}
}

package encap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
)

// fragments runs the loop of Fragment4's comment.
func fragments(pkt []byte, mtu int) (all [][]byte, err error) {
	for off, more := 0, true; more; more = off != 0 {
		var frag []byte
		if frag, off, err = Fragment4(nil, pkt, mtu, off); err != nil {
			return all, err
		}
		all = append(all, frag)
	}
	return all, nil
}

// reassemble is the slow reference of RFC 815's result: the first fragment's
// header, and every byte of data where its fragment says.
func reassemble(t testing.TB, frags [][]byte) []byte {
	t.Helper()
	var data, header []byte
	end := -1
	seen := map[int]bool{}
	for _, f := range frags {
		hlen := int(f[0]&0xf) * 4
		if slowSum(f[:hlen], 0) != 0xffff {
			t.Fatalf("fragment with wrong header checksum: %x", f[:hlen])
		}
		if int(binary.BigEndian.Uint16(f[2:])) != len(f) {
			t.Fatalf("fragment of %d bytes claims %d", len(f), binary.BigEndian.Uint16(f[2:]))
		}
		field := binary.BigEndian.Uint16(f[6:])
		at := int(field&0x1fff) * 8
		body := f[hlen:]
		if need := at + len(body) - len(data); need > 0 {
			data = append(data, make([]byte, need)...)
		}
		for i := range body {
			if seen[at+i] {
				t.Fatalf("byte %d twice", at+i)
			}
			seen[at+i] = true
		}
		copy(data[at:], body)
		if at == 0 {
			header = bytes.Clone(f[:hlen])
		}
		if field&0x2000 == 0 {
			if end >= 0 {
				t.Fatal("two last fragments")
			}
			end = at + len(body)
		} else if len(body)%8 != 0 {
			t.Fatalf("%d bytes of data before more fragments", len(body))
		}
	}
	if header == nil || end != len(data) || len(seen) != len(data) {
		t.Fatalf("gaps: %d of %d bytes, end %d", len(seen), len(data), end)
	}
	binary.BigEndian.PutUint16(header[2:], uint16(len(header)+len(data)))
	header[6], header[7] = 0, 0
	return append(fixHeader(header), data...)
}

func TestFragmentsEqualKernels(t *testing.T) {
	all := kernelPackets(t)
	want := [][]byte{all["fragment-first"], all["fragment-last"]}
	got, err := fragments(reassemble(t, want), 1300)
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Errorf("%v\n got %x\nwant %x", err, got, want)
	}
}

// Options with the copy bit are in every fragment, the others in the first.
var (
	optAlert = []byte{0x94, 4, 0, 0} // router alert: copied
	// strict source route: copied
	optSource = []byte{0x89, 7, 4, 10, 0, 0, 1}
	optRecord = []byte{0x07, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}                          // record route: not copied
	optTime   = []byte{0x44, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0}                       // timestamp: not copied
	optNop    = []byte{1}                                                            // padding
	optMixed  = bytes.Join([][]byte{optNop, optRecord, optAlert, {0, 9, 9, 9}}, nil) // 9s after the end
)

func TestFragmentReassembles(t *testing.T) {
	pad := func(b ...[]byte) []byte {
		all := bytes.Join(b, nil)
		return append(all, make([]byte, -len(all)&3)...)
	}
	for name, c := range map[string]struct{ opts, later []byte }{
		"no options":       {nil, nil},
		"all copied":       {pad(optAlert, optSource), pad(optAlert, optSource)},
		"none copied":      {pad(optRecord, optTime), nil},
		"some copied":      {pad(optTime, optSource), pad(optSource)},
		"stops at the end": {optMixed, optAlert},
		"forty bytes": {pad(optTime, optRecord, optNop, optAlert, optSource, optAlert),
			pad(optAlert, optSource, optAlert)},
	} {
		for _, n := range []int{0, 1, 7, 8, 9, 100, 1000, 1479, 1480, 1481, 65400} {
			for _, mtu := range []int{68, 69, 75, 76, 100, 576, 1300, 1500, 9000} {
				name := fmt.Sprintf("%s/n=%d/mtu=%d", name, n, mtu)
				pkt := packet(false, 200, randomBytes(testRand(t), n))
				if c.opts != nil {
					pkt = options(pkt, c.opts)
				}
				frags, err := fragments(pkt, mtu)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for i, f := range frags {
					if len(f) > mtu {
						t.Fatalf("%s: fragment of %d bytes", name, len(f))
					}
					if hlen := int(f[0]&0xf) * 4; i > 0 && !bytes.Equal(f[20:hlen], c.later) {
						t.Fatalf("%s: later options %x, want %x", name, f[20:hlen], c.later)
					}
				}
				if got := reassemble(t, frags); !bytes.Equal(got, pkt) {
					t.Fatalf("%s: reassembled\n got %x\nwant %x", name, got, pkt)
				}
			}
		}
	}
}

// A fragment that meets a smaller link is cut again, and all still fit together.
func TestFragmentOfFragments(t *testing.T) {
	pkt := options(packet(false, ProtoUDP, randomBytes(testRand(t), 5000)), append(optAlert, 7, 4, 4, 0))
	whole, err := fragments(pkt, 1500)
	if err != nil {
		t.Fatal(err)
	}
	var small [][]byte
	for _, f := range whole {
		parts, err := fragments(f, 296)
		if err != nil {
			t.Fatal(err)
		}
		small = append(small, parts...)
	}
	if got := reassemble(t, small); !bytes.Equal(got, pkt) {
		t.Errorf("reassembled\n got %x\nwant %x", got, pkt)
	}
}

func TestFragmentRefuses(t *testing.T) {
	pkt := packet(false, ProtoUDP, make([]byte, 100))
	df := bytes.Clone(pkt)
	df[6] = 0x40
	opts := func(o ...byte) []byte { return options(pkt, o) }
	for name, c := range map[string]struct {
		pkt         []byte
		mtu, offset int
		want        error
	}{
		"df":                   {df, 68, 0, ErrNotEligible},
		"df that fits":         {df, 120, 0, nil},
		"ipv6":                 {packet(true, ProtoUDP, make([]byte, 100)), 100, 0, ErrNotEligible},
		"ipv6 that fits":       {packet(true, ProtoUDP, make([]byte, 100)), 1500, 0, ErrNotEligible},
		"mtu 27":               {pkt, 27, 0, ErrNotEligible},
		"mtu 28":               {pkt, 28, 0, nil},
		"mtu negative":         {pkt, math.MinInt, 0, ErrNotEligible},
		"offset odd":           {pkt, 68, 4, ErrMalformed},
		"offset negative":      {pkt, 68, -8, ErrMalformed},
		"offset at the end":    {pkt, 68, 104, ErrMalformed},
		"cut":                  {pkt[:50], 68, 0, ErrShort},
		"option without end":   {opts(1, 1, 1, 0x94), 68, 0, ErrMalformed},
		"option of length 0":   {opts(0x94, 0, 0, 0), 68, 0, ErrMalformed},
		"option of length 1":   {opts(0x94, 1, 0, 0), 68, 0, ErrMalformed},
		"option past header":   {opts(0x94, 5, 0, 0), 68, 0, ErrMalformed},
		"same, later fragment": {opts(0x94, 5, 0, 0), 68, 40, ErrMalformed},
	} {
		out, next, err := Fragment4([]byte{1}, c.pkt, c.mtu, c.offset)
		if !errors.Is(err, c.want) || err != nil && (len(out) != 1 || next != 0) {
			t.Errorf("%s: %d bytes, next %d, %v, want %v", name, len(out), next, err, c.want)
		}
	}
}

func FuzzFragment4(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b, 100)
	}
	f.Add(options(packet(false, 200, make([]byte, 300)), optMixed), 68)
	f.Fuzz(func(t *testing.T, b []byte, mtu int) {
		frags, err := fragments(b, mtu)
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNotEligible) {
				t.Fatalf("undocumented error %v", err)
			}
			if len(frags) != 0 {
				t.Fatalf("the first %d fragments were made before %v", len(frags), err)
			}
			return
		}
		in, err := ParseInner(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frags {
			if _, err := ParseInner(f); err != nil || len(f) > mtu {
				t.Fatalf("fragment of %d bytes: %v", len(f), err)
			}
		}
		if len(frags) == 1 || in.Fragment() {
			return
		}
		want := bytes.Clone(b[:in.TotalLen])
		want[6], want[7] = 0, 0 // the reserved bit is not kept
		if got := reassemble(t, frags); !bytes.Equal(got[in.HeaderLen:], want[in.HeaderLen:]) ||
			!bytes.Equal(got[:in.HeaderLen], fixHeader(want)[:in.HeaderLen]) {
			t.Fatalf("reassembled\n got %x\nwant %x", got, want)
		}
	})
}

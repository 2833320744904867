package encap

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestRepeated changes each byte of a header in turn: only what counts up from one segment to the next may
// differ.
func TestRepeated(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, six := range []bool{false, true} {
		l4 := randomBytes(r, 32)
		l4[12] = 8 << 4 // with 12 bytes of options
		a := packet(six, ProtoTCP, append(l4, randomBytes(r, 50)...))
		var in Inner
		if err := in.Parse(a); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			b := bytes.Clone(a)
			b[i]++
			// the sequence number, and what is no header of fixed length
			may := i >= in.L4+4 && i < in.L4+8 || i >= in.L4+20
			if !six {
				may = may || i == 4 || i == 5 || i == 10 || i == 11
			}
			if got := in.Repeated(a, b); got != may {
				t.Errorf("six=%t: with another byte %d: %t", six, i, got)
			}
		}
		if in.Repeated(a, a[:len(a)-1]) || in.Repeated(a[:len(a)-1], a[:len(a)-1]) ||
			in.Repeated(append(a[:len(a):len(a)], 0), append(a[:len(a):len(a)], 0)) {
			t.Errorf("six=%t: another length", six)
		}
		in.Proto = ProtoUDP
		if in.Repeated(a, a) {
			t.Errorf("six=%t: what is no TCP repeats nothing", six)
		}
	}
}

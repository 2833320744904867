package encap

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
)

// unpack splits a datagram as a receiver does.
func unpack(b []byte) (pkts [][]byte, err error) {
	for len(b) > 0 {
		in, err := ParseInner(b)
		if err != nil {
			return pkts, err
		}
		pkts = append(pkts, b[:in.TotalLen])
		if b, err = NextPacked(b, in.TotalLen); err != nil {
			return pkts, err
		}
	}
	return pkts, nil
}

func TestNextPacked(t *testing.T) {
	a, b := packet(false, ProtoUDP, make([]byte, 3)), packet(true, ProtoTCP, make([]byte, 20))
	pad := func(n int) []byte { return Padding(n) }
	for name, c := range map[string]struct {
		b    []byte
		want [][]byte
		err  error
	}{
		"one":                 {a, [][]byte{a}, nil},
		"one, padded":         {slices.Concat(a, pad(1)), [][]byte{a}, nil},
		"two":                 {slices.Concat(a, b), [][]byte{a, b}, nil},
		"three, padded":       {slices.Concat(b, a, a, pad(1400)), [][]byte{b, a, a}, nil},
		"padding is not read": {slices.Concat(a, []byte{0x0f, 0x45, 0xff}), [][]byte{a}, nil},
		"garbage behind":      {slices.Concat(a, b, []byte{0x50, 0, 0}), [][]byte{a, b}, ErrMalformed},
		"cut":                 {slices.Concat(a, b[:30]), [][]byte{a}, ErrShort},
		"padding only":        {pad(30), nil, ErrMalformed},
	} {
		got, err := unpack(c.b)
		if !errors.Is(err, c.err) || !slices.EqualFunc(got, c.want, bytes.Equal) {
			t.Errorf("%s: %x, %v, want %v", name, got, err, c.err)
		}
	}
	for n, want := range map[int]error{-1: ErrMalformed, 0: ErrMalformed, len(a): nil, len(a) + 1: ErrShort,
		math.MaxInt: ErrShort} {
		if rest, err := NextPacked(a, n); !errors.Is(err, want) || rest != nil {
			t.Errorf("packet of %d bytes: %x, %v, want %v", n, rest, err, want)
		}
	}
}

func TestPadding(t *testing.T) {
	for _, n := range []int{0, 1, 1400, 65535} {
		if p := Padding(n); len(p) != n || cap(p) != n || bytes.Trim(p, "\x00") != nil {
			t.Errorf("%d bytes of padding: %d, of %d", n, len(p), cap(p))
		}
	}
}

// Whatever a datagram holds, its packets are pieces of it in order, and what is not
// padding comes back when they are put together again.
func FuzzNextPacked(f *testing.F) {
	a, b := packet(false, ProtoUDP, make([]byte, 3)), packet(true, ProtoTCP, make([]byte, 20))
	f.Add(slices.Concat(a, b, a, make([]byte, 7)))
	f.Add(slices.Concat(b, b[:9]))
	f.Add(slices.Concat(a, []byte{0xf0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		pkts, err := unpack(b)
		whole := slices.Concat(pkts...)
		if !bytes.HasPrefix(b, whole) {
			t.Fatalf("%x are not the start of %x", pkts, b)
		}
		rest := b[len(whole):]
		switch {
		case errors.Is(err, ErrShort), errors.Is(err, ErrMalformed):
			if len(rest) == 0 {
				t.Fatalf("nothing is left, but %v", err)
			}
		case err != nil:
			t.Fatalf("undocumented error %v", err)
		case len(rest) > 0 && rest[0]>>4 != 0:
			t.Fatalf("%x dropped without an error", rest)
		}
		again, err := unpack(slices.Concat(whole, Padding(3)))
		if len(whole) > 0 && (err != nil || !slices.EqualFunc(again, pkts, bytes.Equal)) {
			t.Fatalf("round trip: %x, %v, want %x", again, err, pkts)
		}
	})
}

package encap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func TestProbe(t *testing.T) {
	for _, c := range []struct {
		p    Probe
		want string
	}{
		{Probe{Token: 0x0102030405060708}, "0077504100000000" + "0102030405060708"},
		{Probe{Answer: true, Length: 1472, Token: 0xffeeddccbbaa9988}, "0077504205c00000" + "ffeeddccbbaa9988"},
	} {
		b := AppendProbe(nil, c.p)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%+v is %s, want %s", c.p, got, c.want)
		}
		if got, err := ParseProbe(append(b, 0, 0, 0)); err != nil || got != c.p {
			t.Errorf("%+v came back as %+v, %v", c.p, got, err)
		}
		if _, err := ParseInner(append(bytes.Clone(b), make([]byte, 100)...)); err == nil {
			t.Errorf("%+v passes for an IP packet", c.p)
		}
		if _, err := ParseProbe(b[:ProbeLen-1]); !errors.Is(err, ErrShort) {
			t.Errorf("short: %v", err)
		}
		for i := range 8 {
			if i == 4 || i == 5 {
				continue
			}
			bad := bytes.Clone(b)
			bad[i] ^= 0x84
			if _, err := ParseProbe(bad); !errors.Is(err, ErrMalformed) {
				t.Errorf("byte %d wrong: %v", i, err)
			}
		}
	}
}

// TestProbeArrivesWhole: a probe that asks so is read only if no bit of it is another, and none is missing or
// added.
func TestProbeArrivesWhole(t *testing.T) {
	p := Probe{Whole: true, Length: 48, Token: 0x0102030405060708}
	b := AppendProbe(nil, p)
	if got, err := ParseProbe(b); err != nil || got != p || len(b) != 48 {
		t.Fatalf("%+v came back as %+v, %v, in %d bytes", p, got, err, len(b))
	}
	if _, err := ParseInner(b); err == nil {
		t.Error("it passes for an IP packet")
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		if _, err := ParseProbe(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("byte %d wrong: %v", i, err)
		}
	}
	for _, bad := range [][]byte{b[:47], b[:ProbeLen], append(bytes.Clone(b), 0)} {
		if _, err := ParseProbe(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d bytes of 48: %v", len(bad), err)
		}
	}
	next := AppendProbe(nil, Probe{Whole: true, Length: 48, Token: p.Token + 1})
	if _, err := ParseProbe(append(bytes.Clone(b[:32]), next[32:]...)); !errors.Is(err, ErrMalformed) {
		t.Errorf("half of it is another's: %v", err)
	}
}

func FuzzParseProbe(f *testing.F) {
	f.Add(AppendProbe(nil, Probe{Whole: true, Length: 40, Token: 1}))
	f.Add(AppendProbe(nil, Probe{Token: 1}))
	f.Add(AppendProbe(nil, Probe{Answer: true, Length: 9, Token: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProbe(b)
		switch {
		case errors.Is(err, ErrShort), errors.Is(err, ErrMalformed):
		case err != nil:
			t.Fatalf("undocumented error %v", err)
		case !bytes.HasPrefix(b, AppendProbe(nil, p)):
			t.Fatalf("%+v does not come back", p)
		}
	})
}

package encap

import (
	"bytes"
	"testing"
)

// Figure 4 of RFC 6040, row by row as it is printed; "drop" has no codepoint.
func TestDecapECNFigure4(t *testing.T) {
	columns := []ECN{NotECT, ECT0, ECT1, CE}
	const drop = ECN(0xff)
	figure := map[ECN][]ECN{
		NotECT: {NotECT, NotECT, NotECT, drop},
		ECT0:   {ECT0, ECT0, ECT1, CE},
		ECT1:   {ECT1, ECT1, ECT1, CE},
		CE:     {CE, CE, CE, CE},
	}
	for inner, row := range figure {
		for i, want := range row {
			got, ok := DecapECN(columns[i], inner)
			if ok != (want != drop) || ok && got != want {
				t.Errorf("inner %v, outer %v: %v, %t, want %v", inner, columns[i], got, ok, want)
			}
		}
	}
}

func TestECNWireValues(t *testing.T) { // RFC 3168 figure 1
	for e, want := range map[ECN]string{0b00: "Not-ECT", 0b01: "ECT(1)", 0b10: "ECT(0)", 0b11: "CE",
		4: "ecn(4)"} {
		if e.String() != want {
			t.Errorf("%#b: %v, want %s", uint8(e), e, want)
		}
	}
}

func TestSetECNChangesNothingElse(t *testing.T) {
	for _, six := range []bool{false, true} {
		for class := range 256 {
			for e := range ECN(4) {
				make := func(class uint8) []byte {
					h := header{src: ip("10.0.0.1"), dst: ip("10.0.0.2"), trafficClass: class, ttl: 9,
						flowLabel: 0xfffff, proto: 6}
					if six {
						h.src, h.dst = ip("2001:db8::1"), ip("2001:db8::2")
					}
					return h.appendTo(nil)
				}
				got, want := make(uint8(class)), make(uint8(class)&^3|uint8(e))
				SetECN(got, e)
				if !bytes.Equal(got, want) {
					t.Fatalf("class %#02x to %v:\n got %x\nwant %x", class, e, got, want)
				}
			}
		}
	}
	for _, b := range [][]byte{nil, {0x45}, bytes.Repeat([]byte{0x11}, 40), append([]byte{0x45}, 1, 2, 3)} {
		was := bytes.Clone(b)
		if SetECN(b, CE); !bytes.Equal(b, was) {
			t.Errorf("%x became %x", was, b)
		}
	}
}

package encap

import (
	"bytes"
	"errors"
	"testing"
)

func TestVXLANWireBytes(t *testing.T) {
	h := VXLAN{VNI: 0xabcdef, Ethernet: Ethernet{
		Dst: MAC{2, 0, 0, 0, 0, 0xfe}, Src: MAC{2, 0, 0, 0, 0, 1}, Type: EtherTypeIPv6,
	}}
	wire := unhex(t, "08 000000 abcdef 00  0200000000fe 020000000001 86dd")
	got, err := AppendVXLAN([]byte{9}, h)
	if err != nil || !bytes.Equal(got[1:], wire) || got[0] != 9 {
		t.Errorf("got %x, %v, want %x", got, err, wire)
	}
	// Every reserved bit set (RFC 7348 §5: ignored on receipt).
	wire[0], wire[1], wire[2], wire[3], wire[7] = 0xff, 0xff, 0xff, 0xff, 0xff
	p, inner, err := ParseVXLAN(append(wire, 0x60))
	if err != nil || p != h || !bytes.Equal(inner, []byte{0x60}) {
		t.Errorf("parsed %+v, %x, %v", p, inner, err)
	}
	if s := h.Dst.String(); s != "02:00:00:00:00:fe" {
		t.Errorf("MAC prints as %s", s)
	}
}

func TestVXLANRefuses(t *testing.T) {
	if b, err := AppendVXLAN([]byte{1}, VXLAN{VNI: MaxVNI + 1}); !errors.Is(err, ErrMalformed) || len(b) != 1 {
		t.Errorf("VNI of 25 bits: %x, %v", b, err)
	}
	whole, err := AppendVXLAN(nil, VXLAN{VNI: MaxVNI})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, inner, err := ParseVXLAN(whole[:n]); !errors.Is(err, ErrShort) || inner != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, inner, err := ParseVXLAN(whole); err != nil || len(inner) != 0 {
		t.Errorf("headers only: %x, %v", inner, err)
	}
	whole[0] = 0xf7
	if _, _, err := ParseVXLAN(whole); !errors.Is(err, ErrMalformed) {
		t.Errorf("no I flag: %v", err)
	}
	if _, _, err := ParseEthernet(whole[:13]); !errors.Is(err, ErrShort) {
		t.Errorf("13-byte frame: %v", err)
	}
}

func FuzzParseVXLAN(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b[min(len(b), 28):])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, inner, err := ParseVXLAN(b)
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		again, err := AppendVXLAN(nil, h)
		if err != nil {
			t.Fatalf("%+v parsed but does not append: %v", h, err)
		}
		h2, inner2, err := ParseVXLAN(append(again, inner...))
		if err != nil || h2 != h || !bytes.Equal(inner2, inner) {
			t.Fatalf("round trip: %+v, %v, want %+v", h2, err, h)
		}
	})
}

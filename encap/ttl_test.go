package encap

import (
	"bytes"
	"testing"
)

func TestDecrementTTL(t *testing.T) {
	for _, six := range []bool{false, true} {
		for ttl := range 256 {
			make := func(ttl uint8) []byte {
				h := header{src: ip("10.0.0.1"), dst: ip("10.0.0.2"), ttl: ttl, id: 0xfefe, proto: 0xff}
				if six {
					h.src, h.dst = ip("2001:db8::1"), ip("2001:db8::2")
				}
				return h.appendTo(nil)
			}
			got, want := make(uint8(ttl)), make(uint8(ttl))
			if ttl > 1 {
				want = make(uint8(ttl - 1))
			}
			if ok := DecrementTTL(got); ok != (ttl > 1) || !bytes.Equal(got, want) {
				t.Fatalf("ttl %d: %t\n got %x\nwant %x", ttl, ok, got, want)
			}
		}
	}
	for _, b := range [][]byte{nil, {0x45}, bytes.Repeat([]byte{0x55}, 40)} {
		was := bytes.Clone(b)
		if DecrementTTL(b) || !bytes.Equal(b, was) {
			t.Errorf("%x is no packet, and became %x", was, b)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b, uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, e uint8) {
		before, err := ParseInner(b)
		ok := headerChecksumOK(b)
		SetECN(b, ECN(e))
		done := DecrementTTL(b)
		if err != nil {
			return
		}
		after, err := ParseInner(b)
		want := before
		want.TrafficClass = before.TrafficClass&^3 | e&3
		if done {
			want.TTL--
		}
		if err != nil || after != want || done != (before.TTL > 1) {
			t.Fatalf("%+v became %+v, %v (ecn %d, ttl %t)", before, after, err, e, done)
		}
		if headerChecksumOK(b) != ok {
			t.Fatalf("header checksum was %t", ok)
		}
	})
}

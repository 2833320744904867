package encap

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
)

func outer4() Outer {
	return Outer{
		Src: netip.MustParseAddrPort("192.0.2.1:46211"), Dst: netip.MustParseAddrPort("192.0.2.2:8472"),
		TrafficClass: 2, TTL: 64, ID: 0x7ca, Checksum: true,
	}
}

func outer6() Outer {
	return Outer{
		Src: netip.MustParseAddrPort("[2001:db8::1]:46467"), Dst: netip.MustParseAddrPort("[2001:db8::2]:4789"),
		TTL: 64, Checksum: true,
	}
}

// We parse packets that Linux put on a virtual wire, find the values that were set up
// there, and write the same bytes from them.
func TestKernelVXLANBothWays(t *testing.T) {
	all := kernelPackets(t)
	mac := func(format, node byte) MAC { return MAC{2, 0, 0, 0, format, node} }
	for name, c := range map[string]struct {
		outer Outer
		vxlan VXLAN
	}{
		"vxlan-v4-icmp": {outer4(), VXLAN{1, Ethernet{mac(4, 2), mac(4, 1), EtherTypeIPv4}}},
		"vxlan-v6-icmp": {outer6(), VXLAN{0xfedcba, Ethernet{mac(6, 2), mac(6, 1), EtherTypeIPv6}}},
	} {
		golden := all[name]
		o, payload, err := parseOuter(golden)
		if err != nil || o != c.outer {
			t.Fatalf("%s: outer %+v, %v, want %+v", name, o, err, c.outer)
		}
		v, inner, err := ParseVXLAN(payload)
		if err != nil || v != c.vxlan {
			t.Fatalf("%s: vxlan %+v, %v, want %+v", name, v, err, c.vxlan)
		}
		b, err := AppendOuter(nil, c.outer, VXLANOverhead+len(inner))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = AppendVXLAN(b, c.vxlan); err != nil {
			t.Fatal(err)
		}
		if b = append(b, inner...); !bytes.Equal(b, golden) {
			t.Errorf("%s:\n got %x\nwant %x", name, b, golden)
		}
	}
}

func TestAppendOuterInPlace(t *testing.T) {
	for _, o := range []Outer{outer4(), outer6()} {
		inner := transport(false, ProtoUDP, 100, true)
		buf := make([]byte, MaxOverhead, 2000)
		buf = append(buf, inner...)
		off := MaxOverhead - VXLANOverhead
		if _, err := AppendVXLAN(buf[off:off], VXLAN{VNI: 5}); err != nil {
			t.Fatal(err)
		}
		payload := len(buf) - off
		off -= o.headerLen()
		if _, err := AppendOuter(buf[off:off], o, payload); err != nil {
			t.Fatal(err)
		}
		pkt := buf[off:]
		if !completeChecksum(pkt, o.headerLen()-UDPLen, ChecksumOffsetUDP) {
			t.Error("the UDP checksum was not partial")
		}
		if !slowTransportOK(pkt, o.headerLen()-UDPLen, ProtoUDP) {
			t.Error("the UDP checksum is wrong")
		}
		_, got, err := parseOuter(pkt)
		if err != nil || !bytes.Equal(got[VXLANOverhead:], inner) {
			t.Errorf("inner packet moved: %x, %v", got, err)
		}
	}
}

func TestAppendOuterRefuses(t *testing.T) {
	mixed, mapped, none := outer4(), outer6(), Outer{}
	mixed.Src = outer6().Src
	mapped.Dst = netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")
	for name, c := range map[string]struct {
		o    Outer
		n    int
		want error
	}{
		"two families":  {mixed, 10, ErrMalformed},
		"4-in-6":        {mapped, 10, ErrMalformed},
		"no addresses":  {none, 10, ErrMalformed},
		"negative":      {outer4(), -1, ErrTooLong},
		"v4 too long":   {outer4(), 65508, ErrTooLong},
		"v6 too long":   {outer6(), 65528, ErrTooLong},
		"v4 just fits":  {outer4(), 65507, nil},
		"v6 just fits":  {outer6(), 65527, nil},
		"empty payload": {outer4(), 0, nil},
	} {
		dst := []byte{1, 2, 3}
		got, err := AppendOuter(dst, c.o, c.n)
		if !errors.Is(err, c.want) || err != nil && len(got) != 3 {
			t.Errorf("%s: %d bytes, %v, want %v", name, len(got), err, c.want)
		}
	}
}

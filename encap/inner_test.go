package encap

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestParseInnerKernelPackets(t *testing.T) {
	all := kernelPackets(t)
	for name, want := range map[string]Inner{
		"vxlan-v4-icmp": {
			Src: ip("10.1.1.0"), Dst: ip("10.1.2.0"), Version: 4, HeaderLen: 20, TotalLen: 36,
			TrafficClass: 2, TTL: 64, Proto: ProtoICMP, L4: 20, DF: true,
		},
		"vxlan-v6-icmp": {
			Src: ip("2001:db8:1:1::"), Dst: ip("2001:db8:1:2::"), Version: 6, HeaderLen: 40, TotalLen: 56,
			TTL: 64, Proto: ProtoICMPv6, L4: 40, DF: true,
		},
		"vxlan-v4-tcp-syn": {
			Src: ip("10.1.1.0"), Dst: ip("10.1.2.0"), Version: 4, HeaderLen: 20, TotalLen: 60,
			TTL: 64, Proto: ProtoTCP, L4: 20, DF: true,
		},
		"fragment-first": {
			Src: ip("10.1.1.1"), Dst: ip("10.1.2.1"), Version: 4, HeaderLen: 20, TotalLen: 1300,
			TTL: 64, Proto: ProtoUDP, L4: 20, MoreFragments: true,
		},
		"fragment-last": {
			Src: ip("10.1.1.1"), Dst: ip("10.1.2.1"), Version: 4, HeaderLen: 20, TotalLen: 120,
			TTL: 64, Proto: ProtoUDP, FragOffset: 1280,
		},
	} {
		b := all[name]
		if name[:5] == "vxlan" {
			_, payload, err := parseOuter(b)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, b, err = ParseVXLAN(payload); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		// Trailing bytes, Ethernet padding say, change nothing.
		got, err := ParseInner(append(append([]byte{}, b...), 1, 2, 3))
		if err != nil || got != want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

func TestParseInnerRefuses(t *testing.T) {
	four, six := packet(false, ProtoUDP, make([]byte, 8)), packet(true, ProtoUDP, make([]byte, 8))
	with := func(b []byte, at int, v ...byte) []byte {
		b = append([]byte{}, b...)
		copy(b[at:], v)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":                    {nil, ErrShort},
		"one byte v4":              {[]byte{0x45}, ErrShort},
		"one byte v6":              {[]byte{0x60}, ErrShort},
		"v4 header cut":            {four[:19], ErrShort},
		"v6 header cut":            {six[:39], ErrShort},
		"v4 body cut":              {four[:27], ErrShort},
		"v6 body cut":              {six[:47], ErrShort},
		"version 0":                {with(four, 0, 0x05), ErrMalformed},
		"version 5":                {with(four, 0, 0x55), ErrMalformed},
		"version 15":               {with(four, 0, 0xff), ErrMalformed},
		"ihl 4":                    {with(four, 0, 0x44), ErrMalformed},
		"ihl 0":                    {with(four, 0, 0x40), ErrMalformed},
		"ihl beyond total length":  {with(four, 0, 0x48), ErrMalformed},
		"total length 0 (BIG TCP)": {with(four, 2, 0, 0), ErrMalformed},
		"total length 19":          {with(four, 2, 0, 19), ErrMalformed},
		"v4 ping of death":         {with(four, 6, 0x1f, 0xff), ErrMalformed},
		"v6 jumbogram": {with(extension(six, protoHopByHop, unhex(t, "0000c20400010000")), 4, 0, 0),
			ErrMalformed},
		"v6 extension length too long": {extension(six, protoDestOpts, []byte{0, 9, 0, 0, 0, 0, 0, 0}),
			ErrMalformed},
		"v6 extension 8 too long": {extension(packet(true, ProtoUDP, nil), protoDestOpts,
			[]byte{0, 1, 0, 0, 0, 0, 0, 0}), ErrMalformed},
		"v6 extension header cut": {packet(true, protoDestOpts, make([]byte, 7)), ErrMalformed},
		"v6 AH too long":          {extension(six, protoAH, []byte{0, 255, 0, 0, 0, 0, 0, 0}), ErrMalformed},
		"v6 ping of death": {extension(six, protoFragment, []byte{0, 0, 0xff, 0xf8, 0, 0, 0, 1}),
			ErrMalformed},
	} {
		if in, err := ParseInner(c.b); !errors.Is(err, c.want) || in != (Inner{}) {
			t.Errorf("%s: %+v, %v, want %v", name, in, err, c.want)
		}
	}
}

func TestParseInnerExtensionHeaders(t *testing.T) {
	udp := transport(true, ProtoUDP, 20, true)
	pad := []byte{0, 0, 1, 4, 0, 0, 0, 0}
	long := append([]byte{0, 1, 1, 12}, make([]byte, 12)...)
	frag := func(offset uint16, more byte) []byte {
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b[2:], offset|uint16(more))
		return b
	}
	chain := func(b []byte, n int) []byte {
		for range n {
			b = extension(b, protoDestOpts, pad)
		}
		return b
	}
	for name, c := range map[string]struct {
		b      []byte
		proto  uint8
		l4     int
		offset int
		more   bool
		routed bool
	}{
		"hop by hop":      {extension(udp, protoHopByHop, pad), ProtoUDP, 48, 0, false, false},
		"16-byte options": {extension(udp, protoDestOpts, long), ProtoUDP, 56, 0, false, false},
		"authentication": {extension(udp, protoAH, append([]byte{0, 1}, make([]byte, 10)...)), ProtoUDP, 52,
			0, false, false},
		"routing, nothing left": {extension(udp, protoRouting, []byte{0, 0, 4, 0, 0, 0, 0, 0}), ProtoUDP, 48, 0,
			false, false},
		"routing, one left": {extension(udp, protoRouting, []byte{0, 0, 4, 1, 0, 0, 0, 0}), ProtoUDP, 48, 0,
			false, true},
		"atomic fragment": {extension(udp, protoFragment, frag(0, 0)), ProtoUDP, 48, 0, false, false},
		"first fragment":  {extension(udp, protoFragment, frag(0, 1)), ProtoUDP, 48, 0, true, false},
		"later fragment":  {extension(udp, protoFragment, frag(1280, 1)), ProtoUDP, 0, 1280, true, false},
		"last fragment":   {extension(udp, protoFragment, frag(1280, 0)), ProtoUDP, 0, 1280, false, false},
		"later, header cut": {extension(packet(true, protoDestOpts, []byte{1}), protoFragment, frag(8, 0)),
			protoDestOpts, 0, 8, false, false},
		"options, fragment": {extension(extension(udp, protoFragment, frag(0, 1)), protoHopByHop, pad),
			ProtoUDP, 56, 0, true, false},
		"no next header": {extension(packet(true, protoNone, nil), protoHopByHop, pad), protoNone, 0, 0,
			false, false},
		"ESP is not followed": {extension(packet(true, 50, make([]byte, 8)), protoHopByHop, pad), 50, 48, 0,
			false, false},
		"seven":              {chain(udp, 7), ProtoUDP, 40 + 56, 0, false, false},
		"eight are too many": {chain(udp, 8), ProtoUDP, 0, 0, false, false},
		"nine too":           {chain(udp, 9), protoDestOpts, 0, 0, false, false},
	} {
		in, err := ParseInner(c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if in.Proto != c.proto || in.L4 != c.l4 || in.FragOffset != c.offset || in.MoreFragments != c.more ||
			in.routed != c.routed {
			t.Errorf("%s: %+v, want %+v", name, in, c)
		}
		if !in.DF || in.HeaderLen != IPv6Len || in.TotalLen != len(c.b) {
			t.Errorf("%s: DF %t, header %d, total %d", name, in.DF, in.HeaderLen, in.TotalLen)
		}
	}
}

func TestParseInnerFields(t *testing.T) {
	h := header{src: ip("192.0.2.1"), dst: ip("192.0.2.2"), trafficClass: 0xb9, ttl: 3, proto: 132,
		payloadLen: 4}
	h6 := h
	h6.src, h6.dst, h6.flowLabel = ip("::ffff:10.0.0.1"), ip("2001:db8::1"), 0xfffff
	for _, h := range []header{h, h6} {
		in, err := ParseInner(append(h.appendTo(nil), 1, 2, 3, 4))
		if err != nil {
			t.Fatal(err)
		}
		if in.Src != h.src || in.Dst != h.dst || in.TrafficClass != 0xb9 || in.ECN() != ECT1 || in.TTL != 3 ||
			in.Proto != 132 {
			t.Errorf("%+v from %+v", in, h)
		}
	}
	opts := options(packet(false, ProtoUDP, make([]byte, 8)), []byte{1, 1, 1, 0})
	if in, err := ParseInner(opts); err != nil || in.HeaderLen != 24 || in.L4 != 24 || in.TotalLen != 32 {
		t.Errorf("with options: %+v, %v", in, err)
	}
}

func FuzzParseInner(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b)
	}
	f.Add(extension(transport(true, ProtoUDP, 4, true), protoFragment, []byte{0, 0, 0, 1, 0, 0, 0, 9}))
	f.Add(options(transport(false, ProtoTCP, 4, false), []byte{0x94, 4, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := ParseInner(b)
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		if in.HeaderLen < 20 || in.TotalLen < in.HeaderLen || in.TotalLen > len(b) ||
			in.L4 != 0 && (in.L4 < in.HeaderLen || in.L4 > in.TotalLen) || in.FragOffset%8 != 0 {
			t.Fatalf("lengths do not nest: %+v of %d bytes", in, len(b))
		}
		if cut, err := ParseInner(b[:in.TotalLen]); err != nil || cut != in {
			t.Fatalf("trimmed: %+v, %v, whole: %+v", cut, err, in)
		}
		if _, err := ParseInner(b[:in.TotalLen-1]); err == nil {
			t.Fatal("a packet with a byte missing parses")
		}
	})
}

package encap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// The answers of Linux as a router, byte for byte but for fields that are free:
// IPv4 identification and DF, IPv6 flow label.
func TestICMPErrorsEqualKernels(t *testing.T) {
	all := kernelPackets(t)
	for name, k := range map[string]ICMPKind{
		"no-route": ICMPNoRoute, "time-exceeded": ICMPTimeExceeded, "too-big": ICMPTooBig,
	} {
		for family, src := range map[string]netip.Addr{"v4": ip("10.1.1.254"), "v6": ip("2001:db8:1::254")} {
			key := "router-" + name + "-" + family
			want := bytes.Clone(all[key])
			if src.Is4() {
				copy(want[4:8], []byte{0, 0, 0x40, 0})
				fixHeader(want)
			} else {
				copy(want[1:4], []byte{0, 0, 0})
			}
			got, err := AppendICMPError(nil, k, src, 1300, all[key+"-offender"])
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v\n got %x\nwant %x", key, err, got, want)
			}
		}
	}
}

func TestICMPErrorQuotesToItsLimit(t *testing.T) {
	for _, c := range []struct {
		six     bool
		payload int
		want    int
	}{
		{false, 0, 28 + 28}, {false, 520, 576}, {false, 521, 576}, {false, 60000, 576},
		{true, 0, 48 + 48}, {true, 1184, 1280}, {true, 1185, 1280}, {true, 60000, 1280},
	} {
		src := ip("10.1.1.1")
		if c.six {
			src = ip("2001:db8:1::1")
		}
		off := transport(c.six, ProtoUDP, c.payload, true)
		got, err := AppendICMPError([]byte{7}, ICMPNoRoute, src, 0, append(off, 0xee, 0xee))
		if err != nil || got[0] != 7 || len(got)-1 != c.want {
			t.Errorf("%+v: %d bytes, %v", c, len(got)-1, err)
			continue
		}
		in, err := ParseInner(got[1:])
		if err != nil || in.TotalLen != c.want || in.TTL != 64 || !headerChecksumOK(got[1:]) {
			t.Errorf("%+v: %+v, %v", c, in, err)
		}
		if quote := got[1+in.L4+8:]; !bytes.HasPrefix(off, quote) {
			t.Errorf("%+v: quote is not the packet's start", c)
		}
		if c.six && !slowTransportOK(got[1:], in.L4, ProtoICMPv6) || !c.six && slowSum(got[1+in.L4:], 0) != 0xffff {
			t.Errorf("%+v: wrong checksum", c)
		}
	}
}

func TestICMPErrorMTU(t *testing.T) {
	for _, c := range []struct {
		mtu          int
		want4, want6 uint32
	}{{0, 0, 0}, {1400, 1400, 1400}, {-5, 0, 0}, {70000, 65535, 70000}} {
		b, err := AppendICMPError(nil, ICMPTooBig, ip("10.1.1.1"), c.mtu, transport(false, ProtoTCP, 0, true))
		if err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint32(b[24:]); got != c.want4 {
			t.Errorf("mtu %d: IPv4 says %d", c.mtu, got)
		}
		if b, err = AppendICMPError(nil, ICMPTooBig, ip("2001:db8::1"), c.mtu, transport(true, ProtoTCP, 0, true)); err != nil {
			t.Fatal(err)
		}
		if got := binary.BigEndian.Uint32(b[44:]); got != c.want6 {
			t.Errorf("mtu %d: IPv6 says %d", c.mtu, got)
		}
	}
}

func TestICMPErrorEligibility(t *testing.T) {
	icmp := func(six bool, kind uint8) []byte {
		proto := uint8(ProtoICMP)
		if six {
			proto = ProtoICMPv6
		}
		return packet(six, proto, []byte{kind, 0, 0, 0, 0, 0, 0, 0})
	}
	udp := func(six bool) []byte { return transport(six, ProtoUDP, 8, true) }
	with := func(b []byte, at int, v ...byte) []byte {
		copy(b[at:], v)
		if b[0]>>4 == 4 {
			fixHeader(b)
		}
		return b
	}
	addr := func(b []byte, at int, s string) []byte { return with(b, at, ip(s).AsSlice()...) }
	spoilt := udp(false)
	spoilt[10] ^= 1
	frag := func(offset byte, more byte) []byte { return []byte{0, 0, offset, more, 0, 0, 0, 1} }
	pad := []byte{0, 0, 1, 4, 0, 0, 0, 0}
	deep := icmp(true, 1)
	for range 9 {
		deep = extension(deep, protoDestOpts, pad)
	}
	eligible := map[string][]byte{
		"udp4": udp(false), "udp6": udp(true), "echo": icmp(false, 8), "echo reply": icmp(false, 0),
		"timestamp": icmp(false, 13), "echo6": icmp(true, 128), "neighbour advertisement": icmp(true, 136),
		"first fragment":   with(udp(false), 6, 0x20, 0),
		"first fragment 6": extension(udp(true), protoFragment, frag(0, 1)),
		"no next header":   packet(true, protoNone, nil),
		"unknown protocol": packet(false, 200, nil),
		"empty udp":        packet(false, ProtoUDP, nil),
	}
	refused := map[string][]byte{
		"later fragment":     with(udp(false), 6, 0, 1),
		"header checksum":    spoilt,
		"later fragment 6":   extension(udp(true), protoFragment, frag(8, 0)),
		"later, no header 6": extension(packet(true, protoNone, nil), protoFragment, frag(8, 0)),
		"icmp without type":  packet(false, ProtoICMP, nil),
		"icmp6 without type": packet(true, ProtoICMPv6, nil),
		"redirect 6":         icmp(true, 137),
		"hidden icmp6 error": extension(icmp(true, 3), protoHopByHop, pad),
		"deep chain":         deep,
		"broadcast":          addr(udp(false), 16, "255.255.255.255"),
		"multicast":          addr(udp(false), 16, "224.0.0.1"),
		"multicast 6":        addr(udp(true), 24, "ff02::1"),
		"to loopback":        addr(udp(false), 16, "127.0.0.1"),
		"from loopback":      addr(udp(false), 12, "127.0.0.1"),
		"from unspecified":   addr(udp(false), 12, "0.0.0.0"),
		"from unspecified 6": addr(udp(true), 8, "::"),
		"from multicast":     addr(udp(false), 12, "239.1.1.1"),
		"from multicast 6":   addr(udp(true), 8, "ff0e::1"),
		"from broadcast":     addr(udp(false), 12, "255.255.255.255"),
		"from link-local 6":  addr(udp(true), 8, "fe80::1"),
		"from 4-in-6":        addr(udp(true), 8, "::ffff:10.0.0.1"),
	}
	for _, kind := range []uint8{3, 4, 5, 11, 12} {
		refused[fmt.Sprintf("icmp type %d", kind)] = icmp(false, kind)
	}
	for _, kind := range []uint8{0, 1, 2, 3, 4, 100, 127} {
		refused[fmt.Sprintf("icmp6 type %d", kind)] = icmp(true, kind)
	}
	try := func(b []byte) ([]byte, error) {
		src := ip("10.1.1.1")
		if b[0]>>4 == 6 {
			src = ip("2001:db8:1::1")
		}
		return AppendICMPError([]byte{1, 2}, ICMPTimeExceeded, src, 0, b)
	}
	for name, b := range eligible {
		if out, err := try(b); err != nil || len(out) < 2+28 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range refused {
		if out, err := try(b); !errors.Is(err, ErrNotEligible) || len(out) != 2 {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
	}
	// Nobody answers an answer.
	for name, b := range kernelPackets(t) {
		if in, err := ParseInner(b); err != nil || in.Proto != ProtoICMP && in.Proto != ProtoICMPv6 {
			continue
		}
		if _, err := try(b); !errors.Is(err, ErrNotEligible) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestICMPErrorRefuses(t *testing.T) {
	b := transport(false, ProtoUDP, 8, true)
	for name, c := range map[string]struct {
		k    ICMPKind
		src  netip.Addr
		b    []byte
		want error
	}{
		"no kind":        {0, ip("10.1.1.1"), b, ErrMalformed},
		"unknown kind":   {4, ip("10.1.1.1"), b, ErrMalformed},
		"v6 source":      {ICMPNoRoute, ip("2001:db8::1"), b, ErrMalformed},
		"no source":      {ICMPNoRoute, netip.Addr{}, b, ErrMalformed},
		"cut":            {ICMPNoRoute, ip("10.1.1.1"), b[:len(b)-1], ErrShort},
		"not a packet":   {ICMPNoRoute, ip("10.1.1.1"), []byte{0}, ErrMalformed},
		"nothing at all": {ICMPNoRoute, ip("10.1.1.1"), nil, ErrShort},
	} {
		if out, err := AppendICMPError([]byte{1}, c.k, c.src, 0, c.b); !errors.Is(err, c.want) || len(out) != 1 {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
	}
	names := map[ICMPKind]string{ICMPNoRoute: "no-route", ICMPTooBig: "too-big",
		ICMPTimeExceeded: "time-exceeded", 0: "icmp(0)"}
	for k, want := range names {
		if k.String() != want {
			t.Errorf("kind %d is named %q, want %q", uint8(k), k, want)
		}
	}
}

func FuzzAppendICMPError(f *testing.F) {
	for _, b := range kernelPackets(f) {
		f.Add(b, uint8(2), 1400)
	}
	f.Fuzz(func(t *testing.T, b []byte, k uint8, mtu int) {
		src := ip("10.1.1.1")
		if len(b) > 0 && b[0]>>4 == 6 {
			src = ip("2001:db8::1")
		}
		was := bytes.Clone(b)
		out, err := AppendICMPError([]byte{1}, ICMPKind(k), src, mtu, b)
		if !bytes.Equal(b, was) {
			t.Fatal("the offender was written to")
		}
		if err != nil {
			if !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrNotEligible) {
				t.Fatalf("undocumented error %v", err)
			}
			if len(out) != 1 {
				t.Fatal("dst changed beside an error")
			}
			return
		}
		in, err := ParseInner(out[1:])
		if err != nil || in.TotalLen != len(out)-1 || in.Src != src || !headerChecksumOK(out[1:]) {
			t.Fatalf("%+v, %v from %x", in, err, out)
		}
		if _, err := AppendICMPError(nil, ICMPNoRoute, in.Dst, 0, out[1:]); !errors.Is(err, ErrNotEligible) {
			t.Fatalf("the answer would be answered: %v", err)
		}
	})
}

package encap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// template returns a template, and the headers that it was made of.
func template(t testing.TB, six bool) (*FrameTemplate, Ethernet, Outer) {
	t.Helper()
	e := Ethernet{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1}, Type: EtherTypeIPv4}
	o := Outer{Src: netip.MustParseAddrPort("192.0.2.1:46211"), Dst: netip.MustParseAddrPort("192.0.2.2:8285"),
		TTL: 64, DF: true}
	if six {
		e.Type = EtherTypeIPv6
		o.Src, o.Dst = netip.MustParseAddrPort("[2001:db8::1]:46211"), netip.MustParseAddrPort("[2001:db8::2]:8285")
		o.DF = false
	}
	tm, err := NewFrameTemplate(e.Src, e.Dst, o.Src, o.Dst)
	if err != nil {
		t.Fatal(err)
	}
	return &tm, e, o
}

// slowFrame returns what Put should write, with payloadLen zeros behind it.
func slowFrame(t testing.TB, e Ethernet, o Outer, payloadLen int, seed bool) []byte {
	t.Helper()
	b, err := AppendOuter(AppendEthernet(nil, e), o, payloadLen)
	if err != nil {
		t.Fatal(err)
	}
	if !seed {
		clear(b[len(b)-2:])
	}
	return append(b, make([]byte, payloadLen)...)
}

func TestFrameWireBytes(t *testing.T) {
	for _, c := range []struct {
		six  bool
		n    int
		ecn  ECN
		id   uint16
		seed bool
		want string
	}{
		{false, 4, NotECT, 0, false, `020000000002 020000000001 0800
			45000020 00004000 4011b6c9 c0000201 c0000202  b483205d000c0000`},
		{false, 4, CE, 0x1234, true, `020000000002 020000000001 0800
			45030020 12344000 4011a492 c0000201 c0000202  b483205d000c8421`},
		{false, 65507, ECT0, 0xffff, true, `020000000002 020000000001 0800
			4502ffff ffff4000 4011b6e7 c0000201 c0000202  b483205dffeb8401`},
		{true, 4, NotECT, 9, true, `020000000002 020000000001 86dd
			60000000 000c1140 20010db8000000000000000000000001 20010db8000000000000000000000002  b483205d000c5b92`},
		{true, 65527, CE, 0, false, `020000000002 020000000001 86dd
			60300000 ffff1140 20010db8000000000000000000000001 20010db8000000000000000000000002  b483205dffff0000`},
	} {
		tm, _, _ := template(t, c.six)
		want, got := unhex(t, c.want), bytes.Repeat([]byte{0xee}, 70)
		tm.Put(got, c.n, c.ecn, c.id, c.seed)
		if !bytes.Equal(got[:tm.Len()], want) || got[tm.Len()] != 0xee {
			t.Errorf("%+v:\n got %x\nwant %x", c, got, want)
		}
	}
}

// randomFrame draws addresses, ports and lengths; lengths and ids often extreme.
func randomFrame(r *rand.Rand) (e Ethernet, o Outer, n int) {
	e = Ethernet{Dst: MAC(randomBytes(r, 6)), Src: MAC(randomBytes(r, 6)), Type: EtherTypeIPv4}
	e.Dst[0] &^= 1
	e.Src[0] &^= 1
	src, dst := netip.AddrFrom4([4]byte(randomBytes(r, 4))), netip.AddrFrom4([4]byte(randomBytes(r, 4)))
	limit := 65507
	o = Outer{TTL: 64, DF: true, TrafficClass: uint8(r.IntN(4)), ID: uint16(r.Uint32()) | -uint16(r.IntN(2))}
	if r.IntN(2) == 0 {
		e.Type, limit, o.DF, o.ID = EtherTypeIPv6, 65527, false, 0
		src, dst = netip.AddrFrom16([16]byte(randomBytes(r, 16))), netip.AddrFrom16([16]byte(randomBytes(r, 16)))
	}
	o.Src, o.Dst = netip.AddrPortFrom(src, uint16(r.Uint32())), netip.AddrPortFrom(dst, uint16(r.Uint32()))
	switch n = r.IntN(1500); r.IntN(8) {
	case 0:
		n = r.IntN(limit + 1)
	case 1:
		n = limit
	}
	return e, o, n
}

func TestFrameTemplateAgainstSlow(t *testing.T) {
	r := testRand(t)
	for range 5000 {
		e, o, n := randomFrame(r)
		o.Checksum = r.IntN(2) == 0
		tm, err := NewFrameTemplate(e.Src, e.Dst, o.Src, o.Dst)
		if err != nil {
			t.Fatal(err)
		}
		want, got := slowFrame(t, e, o, n, o.Checksum), randomBytes(r, tm.Len())
		before := tm
		tm.Put(got, n, ECN(o.TrafficClass), o.ID, o.Checksum)
		if !bytes.Equal(got, want[:len(want)-n]) {
			t.Fatalf("%+v %+v, %d bytes:\n got %x\nwant %x", e, o, n, got, want[:len(want)-n])
		}
		if tm != before || tm.Len() != len(want)-n || tm.MaxPayload() < n {
			t.Fatalf("template changed, or has length %d and limit %d", tm.Len(), tm.MaxPayload())
		}
	}
}

func TestNewFrameTemplateRefuses(t *testing.T) {
	a, b := MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}
	v4, v6 := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("[2001:db8::1]:1")
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.1]:1")
	for name, c := range map[string]struct {
		local, remote MAC
		src, dst      netip.AddrPort
		want          error
	}{
		"v4":           {a, b, v4, v4, nil},
		"v6":           {a, b, v6, v6, nil},
		"loopback":     {MAC{}, MAC{}, v4, v4, nil},
		"broadcast":    {a, MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, v4, v4, ErrMalformed},
		"group source": {MAC{1}, b, v4, v4, ErrMalformed},
		"mixed":        {a, b, v4, v6, ErrMalformed},
		"mixed too":    {a, b, v6, v4, ErrMalformed},
		"4-in-6":       {a, b, mapped, mapped, ErrMalformed},
		"no addresses": {a, b, netip.AddrPort{}, netip.AddrPort{}, ErrMalformed},
	} {
		tm, err := NewFrameTemplate(c.local, c.remote, c.src, c.dst)
		if !errors.Is(err, c.want) || err != nil && tm != (FrameTemplate{}) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// slowParseFrame does what ParseFrame does, with a function for each layer. Where it
// refuses a frame, ParseFrame has to refuse it too, but maybe with another error.
func slowParseFrame(b []byte) (Frame, bool) {
	e, pkt, err := ParseEthernet(b)
	if err != nil {
		return Frame{}, false
	}
	o, payload, err := parseOuter(pkt)
	if err != nil {
		return Frame{}, false
	}
	in, err := ParseInner(pkt)
	if err != nil || in.TotalLen-in.L4-UDPLen != len(payload) || in.Version == 6 && in.L4 != IPv6Len {
		return Frame{}, false
	}
	if in.Version == 4 && e.Type != EtherTypeIPv4 || in.Version == 6 && e.Type != EtherTypeIPv6 {
		return Frame{}, false
	}
	from := EthernetLen + in.L4 + UDPLen
	return Frame{
		Src: o.Src, Dst: o.Dst, ECN: in.ECN(), Version: in.Version, Checksum: o.Checksum,
		L4: EthernetLen + in.L4, From: from, To: from + len(payload),
	}, true
}

func checkFrame(t testing.TB, b []byte) {
	t.Helper()
	f, err := ParseFrame(b)
	want, ok := slowParseFrame(b)
	switch {
	case err == nil != ok, f != want:
		t.Fatalf("%x:\n got %+v, %v\nwant %+v, %t", b[:min(len(b), 100)], f, err, want, ok)
	case err != nil && !errors.Is(err, ErrShort) && !errors.Is(err, ErrMalformed):
		t.Fatalf("undocumented error %v", err)
	case err == nil && (f.From > f.To || f.To > len(b)):
		t.Fatalf("%+v in %d bytes", f, len(b))
	}
}

func TestParseFrameAgainstSlow(t *testing.T) {
	r, good := testRand(t), 0
	for range 20000 {
		e, o, n := randomFrame(r)
		b := slowFrame(t, e, o, n, o.Checksum || e.Type == EtherTypeIPv6)
		if e.Type == EtherTypeIPv4 && r.IntN(4) == 0 && n < 60000 {
			b = append(b[:EthernetLen:EthernetLen], options(b[EthernetLen:], randomBytes(r, 4*(1+r.IntN(10))))...)
		}
		checkFrame(t, append(b, make([]byte, r.IntN(20))...))
		if _, err := ParseFrame(b); err == nil {
			good++
		}
		for range r.IntN(3) {
			b[r.IntN(min(len(b), 70))] ^= 1 << r.IntN(8)
		}
		if b[12] == 8 && r.IntN(2) == 0 && b[14]&15 >= 5 && len(b) >= 74 {
			fixHeader(b[EthernetLen:])
		}
		checkFrame(t, b[:len(b)-r.IntN(2)*r.IntN(len(b)+1)])
	}
	if good < 19000 { // 4-in-6 and the like are rare
		t.Errorf("%d frames parse: the test is wrong", good)
	}
}

func TestParseFrameRefuses(t *testing.T) {
	build := func(six bool, change func(pkt []byte)) []byte {
		tm, _, _ := template(t, six)
		b := make([]byte, tm.Len()+4)
		tm.Put(b, 4, ECT1, 1, true)
		change(b[EthernetLen:])
		if !six {
			fixHeader(b[EthernetLen:])
		}
		return b
	}
	set := func(at int, v ...byte) func([]byte) { return func(b []byte) { copy(b[at:], v) } }
	none := set(0)
	frame := func(b []byte, at int, v ...byte) []byte { copy(b[at:], v); return b }
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"nothing":          {nil, ErrShort},
		"ethernet only":    {build(false, none)[:14], ErrShort},
		"cut in ipv4":      {build(false, none)[:33], ErrShort},
		"cut in ipv6":      {build(true, none)[:53], ErrShort},
		"cut in udp":       {build(false, none)[:41], ErrShort},
		"cut in payload":   {build(true, none)[:65], ErrShort},
		"arp":              {frame(build(false, none), 12, 8, 6), ErrMalformed},
		"vlan":             {frame(build(false, none), 12, 0x81, 0), ErrMalformed},
		"ipv6 called ipv4": {frame(build(true, none), 12, 8, 0), ErrMalformed},
		"ipv4 called ipv6": {append(frame(build(false, none), 12, 0x86, 0xdd), make([]byte, 20)...),
			ErrMalformed},
		"header length 16":    {frame(build(false, none), 14, 0x44), ErrMalformed},
		"header beyond total": {frame(build(false, none), 14, 0x4f), ErrMalformed},
		"header checksum":     {frame(build(false, none), 24, 0, 0), ErrMalformed},
		"total length 0":      {build(false, set(2, 0, 0)), ErrMalformed},
		"total length 65535":  {build(false, set(2, 0xff, 0xff)), ErrShort},
		"payload length 0":    {build(true, set(4, 0, 0)), ErrMalformed},
		"first fragment":      {build(false, set(6, 0x20, 0)), ErrMalformed},
		"later fragment":      {build(false, set(6, 0, 1)), ErrMalformed},
		"tcp":                 {build(false, set(9, ProtoTCP)), ErrMalformed},
		"tcp over ipv6":       {build(true, set(6, ProtoTCP)), ErrMalformed},
		"hop-by-hop options":  {build(true, set(6, protoHopByHop)), ErrMalformed},
		"ipv6 fragment":       {build(true, set(6, protoFragment)), ErrMalformed},
		"udp length 0":        {build(false, set(24, 0, 0)), ErrMalformed},
		"udp length 7":        {build(true, set(44, 0, 7)), ErrMalformed},
		"udp length less":     {build(false, set(24, 0, 11)), ErrMalformed},
		"udp length more":     {build(true, set(44, 0, 13)), ErrMalformed},
		"ipv6 no checksum":    {build(true, set(46, 0, 0)), ErrMalformed},
		"4-in-6":              {build(true, set(8, unhex(t, "00000000000000000000ffff0a000001")...)), ErrMalformed},
	} {
		if f, err := ParseFrame(c.b); !errors.Is(err, c.want) || f != (Frame{}) {
			t.Errorf("%s: %+v, %v, want %v", name, f, err, c.want)
		}
	}
	for _, six := range []bool{false, true} {
		_, _, o := template(t, six)
		b := append(build(six, none), 1, 2, 3, 4, 5, 6) // padding of the frame
		l4 := len(b) - 6 - 4 - UDPLen
		want := Frame{Src: o.Src, Dst: o.Dst, ECN: ECT1, Version: 4, Checksum: true, L4: l4, From: l4 + 8,
			To: l4 + 12}
		if six {
			want.Version = 6
		}
		if f, err := ParseFrame(b); err != nil || f != want {
			t.Errorf("%+v, %v, want %+v", f, err, want)
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, pkt := range kernelPackets(f) {
		e := Ethernet{Type: EtherTypeIPv4}
		if pkt[0]>>4 == 6 {
			e.Type = EtherTypeIPv6
		}
		f.Add(append(AppendEthernet(nil, e), pkt...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkFrame(t, b)
		p, err := ParseFrame(b)
		if err != nil || (b[0]|b[6])&1 != 0 {
			return
		}
		// A header made from the parsed fields is the one that was parsed.
		tm, err := NewFrameTemplate(MAC(b[6:]), MAC(b[0:]), p.Src, p.Dst)
		if err != nil {
			t.Fatalf("%+v parsed but has no template: %v", p, err)
		}
		n := p.To - p.From
		if n > tm.MaxPayload() {
			t.Fatalf("payload of %d bytes", n)
		}
		again := make([]byte, tm.Len()+n)
		tm.Put(again, n, p.ECN, binary.BigEndian.Uint16(b[18:]), p.Checksum)
		q, err := ParseFrame(again)
		at := tm.Len()
		if err != nil || q != (Frame{p.Src, p.Dst, p.ECN, p.Version, p.Checksum, at - UDPLen, at, at + n}) {
			t.Fatalf("round trip: %+v, %v, want %+v", q, err, p)
		}
	})
}

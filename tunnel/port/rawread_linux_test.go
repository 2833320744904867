package port

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
)

// The outer ends of the frames here: ours and a peer's, of each family.
var (
	ours = [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8285"),
		netip.MustParseAddrPort("[2001:db8::1]:8285")}
	theirs = [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:8285"),
		netip.MustParseAddrPort("[2001:db8::2]:8285")}
)

// frameOf is a frame from theirs to ours, with a complete UDP checksum.
func frameOf(tb testing.TB, six int, ecn encap.ECN, payload []byte) []byte {
	tb.Helper()
	t, err := encap.NewFrameTemplate(encap.MAC{2, 0, 0, 0, 0, 2}, encap.MAC{2, 0, 0, 0, 0, 1},
		theirs[six], ours[six])
	if err != nil {
		tb.Fatal(err)
	}
	b := append(make([]byte, t.Len()), payload...)
	t.Put(b, len(payload), ecn, 7, true)
	encap.FinishChecksum(b, t.Len()-encap.UDPLen, encap.ChecksumOffsetUDP)
	return b
}

// takeFrame has a port at ours read a frame with that virtio-net header, and returns the ring.
func takeFrame(six int, h encap.VNetHdr, frame []byte) *Ring {
	ring := NewRing()
	takeInto(ring, six, h, frame)
	return ring
}

// takeInto does the same with a ring that is there, whose next slot gets the frame as recvfrom(2)
// would put it there.
func takeInto(ring *Ring, six int, h encap.VNetHdr, frame []byte) {
	takeBy(&frames{local: ours[six], gro: &OffloadSwitch{}}, ring, six, h, frame)
}

// takeBy has f do that.
func takeBy(f *frames, ring *Ring, six int, h encap.VNetHdr, frame []byte) {
	front := encap.VNetHdrLen + encap.EthernetLen + [2]int{encap.IPv4Len, encap.IPv6Len}[six] + encap.UDPLen
	p := ring.Slot()
	b := p.buf[p.off-front:]
	h.Put(b)
	n := encap.VNetHdrLen + copy(b[encap.VNetHdrLen:], frame)
	p.Truncated = encap.VNetHdrLen+len(frame) > n
	f.commitFrame(ring, p, b[:n], front)
}

// took says in words what a frame became: the packets, or "refused".
func took(ring *Ring) string {
	if ring.n == 1 && !ring.slots[0].Outer.IsValid() {
		return "refused"
	}
	var b bytes.Buffer
	for i := range ring.Batch() {
		p := &ring.slots[i]
		fmt.Fprintf(&b, "%d", len(p.Bytes()))
		if p.Partial {
			fmt.Fprintf(&b, " partial %d+%d", p.CsumStart, p.CsumOffset)
		}
		if p.SegSize > 0 {
			fmt.Fprintf(&b, " cut %d", p.SegSize)
		}
		b.WriteString(";")
	}
	return b.String()
}

// The headers before an inner packet in a frame, without the virtio-net header, in bytes.
func frameHead(six int) int {
	return encap.EthernetLen + [2]int{encap.IPv4Len, encap.IPv6Len}[six] + encap.UDPLen
}

// TestFrameHeaders: what the virtio-net header of a frame makes of it. The kernel writes these,
// but of what other machines and devices have told it.
func TestFrameHeaders(t *testing.T) {
	const (
		needs, valid = encap.VNetNeedsCsum, encap.VNetDataValid
		none         = encap.VNetGSONone
		uso          = encap.VNetGSOUDPL4
		tcp4, tcp6   = encap.VNetGSOTCPv4, encap.VNetGSOTCPv6
		cwr          = encap.VNetGSOECN
		field        = encap.ChecksumOffsetTCP
	)
	const size = 1000 // of the payload
	for _, tt := range []struct {
		name          string
		flags, gso    uint8
		segment       uint16
		start         int // of the checksum, from the inner packet
		offset        uint16
		spoilt, plain bool // the outer checksum is wrong; is none
		want          string
	}{
		{name: "a datagram", want: "1000;"},
		{name: "checksum verified by a device", flags: valid, want: "1000;"},
		{name: "wrong checksum", spoilt: true, want: "refused"},
		{name: "wrong, and a device vouches", flags: valid, spoilt: true, want: "1000;"},
		{name: "no checksum", plain: true, want: "1000;"},
		{name: "still to be made, as on a virtual wire", flags: needs, start: -8, offset: 6, spoilt: true,
			want: "1000;"},
		{name: "made by nobody, of the IP header", flags: needs, start: -28, offset: 10, want: "1000;"},
		{name: "of the inner packet, at its start", flags: needs, start: 0, offset: 6, want: "1000;"},
		{name: "of the inner packet", flags: needs, start: 20, offset: field, spoilt: true,
			want: "1000 partial 20+16;"},
		{name: "far behind the frame", flags: needs, start: 60000, offset: 65535,
			want: "1000 partial 60000+65535;"},
		{name: "at 0", flags: needs, start: -100, want: "1000;"},
		{name: "no flag, but offsets", start: 20, offset: field, want: "1000;"},
		{name: "segment size without a type", segment: 100, want: "1000;"},

		{name: "a batch", gso: uso, segment: 300, start: -8, offset: 6, flags: needs, want: "300;300;300;100;"},
		{name: "a batch that GRO made", gso: uso, segment: 300, flags: valid, want: "300;300;300;100;"},
		{name: "a batch without any flag", gso: uso, segment: 300, want: "300;300;300;100;"},
		{name: "a batch that ends even", gso: uso, segment: 500, want: "500;500;"},
		{name: "a batch of one", gso: uso, segment: 1000, want: "1000;"},
		{name: "a batch of less than one", gso: uso, segment: 65535, want: "1000;"},
		{name: "a batch of nothing", gso: uso, segment: 0, want: "refused"},
		{name: "a batch with a flag of TCP's", gso: uso | cwr, segment: 300, want: "300;300;300;100;"},
		{name: "an inner batch", gso: uso, segment: 300, flags: needs, start: 20, offset: 6,
			want: "1000 partial 20+6 cut 300;"},
		{name: "an inner batch of nothing", gso: uso, flags: needs, start: 20, offset: 6, want: "refused"},

		{name: "TCP", gso: tcp4, segment: 300, flags: needs, start: 20, offset: field,
			want: "1000 partial 20+16 cut 300;"},
		{name: "TCP, CWR", gso: tcp4 | cwr, segment: 300, flags: needs, start: 20, offset: field,
			want: "1000 partial 20+16 cut 300;"},
		{name: "TCP over IPv6", gso: tcp6, segment: 300, flags: needs, start: 40, offset: field,
			want: "1000 partial 40+16 cut 300;"},
		{name: "TCP with a whole checksum", gso: tcp4, segment: 300, want: "refused"},
		{name: "TCP outside", gso: tcp4, segment: 300, flags: needs, start: -8, offset: 6, want: "refused"},
		{name: "TCP of nothing", gso: tcp4, flags: needs, start: 20, offset: field, want: "refused"},
		{name: "UDP fragments", gso: encap.VNetGSOUDP, segment: 300, flags: needs, start: 20, offset: 6,
			want: "refused"},
		{name: "a type of the future", gso: 6, segment: 300, flags: needs, start: 20, offset: 6, want: "refused"},
		{name: "a tunnel's type", gso: tcp4 | encap.VNetGSOTunnel4, segment: 300, flags: needs, start: 20,
			offset: field, want: "refused"},
		{name: "only the flag of CWR", gso: none | cwr, want: "1000;"},
	} {
		for six := range 2 {
			frame := frameOf(t, six, encap.NotECT, make([]byte, size))
			want := tt.want
			switch at := frame[frameHead(six)-2:]; {
			case tt.spoilt:
				at[0] ^= 0x40
			case tt.plain:
				if at[0], at[1] = 0, 0; six == 1 {
					want = "refused" // IPv6 has no datagrams without
				}
			}
			h := encap.VNetHdr{Flags: tt.flags, GSOType: tt.gso, GSOSize: tt.segment, CsumOffset: tt.offset,
				CsumStart: uint16(max(0, frameHead(six)+tt.start))}
			if got := took(takeFrame(six, h, frame)); got != want {
				t.Errorf("%s, IPv%d: %q, want %q", tt.name, 4+2*six, got, want)
			}
		}
	}
}

// TestFrameForms: padding is cut off, and a frame that is no datagram for us is refused. What else is none
// TestParseFrameRefuses of package encap has.
func TestFrameForms(t *testing.T) {
	payload := bytes.Repeat([]byte("weft"), 25)
	for six := range 2 {
		good := frameOf(t, six, 0, payload)
		for name, tt := range map[string]struct {
			frame []byte
			want  string
		}{
			"as it is":         {good, "100;"},
			"padded":           {append(bytes.Clone(good), 1, 2, 3), "100;"},
			"a byte less":      {good[:len(good)-1], "refused"},
			"empty":            {nil, "refused"},
			"the other family": {frameOf(t, 1-six, 0, payload), "refused"},
			"VLAN":             {bytes.Join([][]byte{good[:12], {0x81, 0, 0, 5}, good[12:]}, nil), "refused"},
		} {
			if got := took(takeFrame(six, encap.VNetHdr{Flags: encap.VNetDataValid}, tt.frame)); got != tt.want {
				t.Errorf("IPv%d, %s: %q, want %q", 4+2*six, name, got, tt.want)
			}
		}
	}
	for six := range 2 {
		ring := takeFrame(six, encap.VNetHdr{}, frameOf(t, six, encap.CE, payload))
		p := &ring.slots[0]
		if p.Outer != theirs[six] || p.OuterECN != encap.CE || !bytes.Equal(p.Bytes(), payload) ||
			p.off != Headroom {
			t.Errorf("from %v, ECN %v, at %d: %q", p.Outer, p.OuterECN, p.off, p.Bytes())
		}
	}
}

// TestFrameLimits: the largest frame fits a slot, one of more datagrams than a batch has room for
// loses the rest, counted, and one that does not fit is refused.
func TestFrameLimits(t *testing.T) {
	for six, most := range [2]int{maxDatagram, MaxPacket - encap.UDPLen} {
		if got, want := took(takeFrame(six, encap.VNetHdr{}, frameOf(t, six, 0, make([]byte, most)))),
			fmt.Sprintf("%d;", most); got != want {
			t.Errorf("IPv%d: %q, want %q", 4+2*six, got, want)
		}
		ring := takeFrame(six, encap.VNetHdr{GSOType: encap.VNetGSOUDPL4, GSOSize: 1},
			frameOf(t, six, 0, make([]byte, 1000)))
		if ring.n != MaxRun || ring.Lost != 1000-MaxRun {
			t.Errorf("of 1000 datagrams %d were read and %d lost", ring.n, ring.Lost)
		}
		big := append(frameOf(t, six, 0, make([]byte, most)), make([]byte, 60000)...)
		if got, want := took(takeFrame(six, encap.VNetHdr{}, big)), fmt.Sprintf("%d;", most); got != want {
			t.Errorf("with much padding behind it: %q, want %q", got, want)
		}
	}
	ring := NewRing()
	for range MaxReads { // superframes one after the other, until there is no slot
		if ring.Slot() != nil {
			takeInto(ring, 0, encap.VNetHdr{GSOType: encap.VNetGSOUDPL4, GSOSize: 500},
				frameOf(t, 0, 0, make([]byte, 60000)))
		}
	}
	if ring.n < BatchSize || ring.n > len(ring.slots) || ring.used > len(ring.arena) {
		t.Errorf("%d packets in %d bytes", ring.n, ring.used)
	}
}

// TestSwitchedOffRunsAreTakenUncounted: what other nodes send as a superframe arrives as one, whatever this
// node's configuration says. An offload that is switched off counts no call for it.
func TestSwitchedOffRunsAreTakenUncounted(t *testing.T) {
	for _, off := range []bool{false, true} {
		var set OffloadSet
		if off {
			set = set.With(OffloadGRO)
		}
		f := &frames{local: ours[0], gro: &OffloadSwitch{}}
		f.gro.set(OffloadGRO, set, true)
		ring := NewRing()
		takeBy(f, ring, 0, encap.VNetHdr{Flags: encap.VNetDataValid, GSOType: encap.VNetGSOUDPL4, GSOSize: 100},
			frameOf(t, 0, 0, make([]byte, 350)))
		if got := f.gro.stats(); ring.n != 4 || off != (got.Calls == 0) || off != (got.Segments == 0) {
			t.Errorf("switched off %t: %d packets, %+v", off, ring.n, got)
		}
	}
}

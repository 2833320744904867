package encap

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// encode serializes layers with an encoder that knows nothing of ours.
func encode(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, ls...); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// foreignOuter is o as layers of gopacket: IP, then UDP.
func foreignOuter(t testing.TB, o Outer) []gopacket.SerializableLayer {
	t.Helper()
	udp := &layers.UDP{SrcPort: layers.UDPPort(o.Src.Port()), DstPort: layers.UDPPort(o.Dst.Port())}
	if o.Dst.Addr().Is4() {
		h := &layers.IPv4{
			Version: 4, IHL: 5, TOS: o.TrafficClass, Id: o.ID, TTL: o.TTL, Protocol: layers.IPProtocolUDP,
			SrcIP: o.Src.Addr().AsSlice(), DstIP: o.Dst.Addr().AsSlice(),
		}
		if o.DF {
			h.Flags = layers.IPv4DontFragment
		}
		if err := udp.SetNetworkLayerForChecksum(h); err != nil {
			t.Fatal(err)
		}
		return []gopacket.SerializableLayer{h, udp}
	}
	h := &layers.IPv6{
		Version: 6, TrafficClass: o.TrafficClass, FlowLabel: o.FlowLabel, HopLimit: o.TTL,
		NextHeader: layers.IPProtocolUDP, SrcIP: o.Src.Addr().AsSlice(), DstIP: o.Dst.Addr().AsSlice(),
	}
	if err := udp.SetNetworkLayerForChecksum(h); err != nil {
		t.Fatal(err)
	}
	return []gopacket.SerializableLayer{h, udp}
}

// TestIPIPAgainstIndependentEncoder compares the header of RFC 2003 with gopacket's, and the length with what
// Overhead says.
func TestIPIPAgainstIndependentEncoder(t *testing.T) {
	r := testRand(t)
	for range 200 {
		addr := func() netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte(randomBytes(r, 4))), 0) }
		o := Outer{Src: addr(), Dst: addr(), TrafficClass: uint8(r.Uint32()), TTL: uint8(r.Uint32()),
			ID: uint16(r.Uint32()), DF: r.IntN(2) == 0}
		inner := randomBytes(r, r.IntN(1500))
		ip := &layers.IPv4{
			Version: 4, IHL: 5, TOS: o.TrafficClass, Id: o.ID, TTL: o.TTL, Protocol: layers.IPProtocolIPv4,
			SrcIP: o.Src.Addr().AsSlice(), DstIP: o.Dst.Addr().AsSlice(),
		}
		if o.DF {
			ip.Flags = layers.IPv4DontFragment
		}
		want := encode(t, ip, gopacket.Payload(inner))
		got, err := AppendOuterIPIP(nil, o, len(inner))
		if err != nil || len(got) != FormatIPIP.Overhead(false) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if got = append(got, inner...); !bytes.Equal(got, want) {
			t.Fatalf("%+v:\n got %x\nwant %x", o, got, want)
		}
	}
	for name, c := range map[string]struct {
		o    Outer
		n    int
		want error
	}{
		"IPv6":      {outer6(), 1, ErrMalformed},
		"no source": {Outer{Dst: outer4().Dst}, 1, ErrMalformed},
		"too long":  {outer4(), 65516, ErrTooLong},
		"negative":  {outer4(), -1, ErrTooLong},
	} {
		if b, err := AppendOuterIPIP([]byte{1}, c.o, c.n); !errors.Is(err, c.want) || len(b) != 1 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestAgainstIndependentEncoder(t *testing.T) {
	r := testRand(t)
	for i := range 400 {
		six := i%2 == 1
		addr := func() netip.AddrPort {
			b := randomBytes(r, 16)
			b[0] = 0x20 // not 4-in-6
			a := netip.AddrFrom16([16]byte(b))
			if !six {
				a = netip.AddrFrom4([4]byte(b[:4]))
			}
			return netip.AddrPortFrom(a, uint16(r.Uint32()))
		}
		o := Outer{Src: addr(), Dst: addr(), TrafficClass: uint8(r.Uint32()), TTL: uint8(r.Uint32()),
			Checksum: true}
		if six {
			o.FlowLabel = r.Uint32() & 0xfffff
		} else {
			o.ID, o.DF = uint16(r.Uint32()), r.IntN(2) == 0
		}
		v := VXLAN{r.Uint32() & MaxVNI, Ethernet{MAC(randomBytes(r, 6)), MAC(randomBytes(r, 6)), EtherTypeIPv4}}
		inner := randomBytes(r, r.IntN(300))

		want := encode(t, append(foreignOuter(t, o),
			&layers.VXLAN{ValidIDFlag: true, VNI: v.VNI},
			&layers.Ethernet{DstMAC: net.HardwareAddr(v.Dst[:]), SrcMAC: net.HardwareAddr(v.Src[:]),
				EthernetType: layers.EthernetTypeIPv4},
			gopacket.Payload(inner))...)
		// gopacket pads frames to Ethernet's 60 bytes; so the inner packet is what it made.
		_, padded, err := ParseVXLAN(want[o.headerLen():])
		if err != nil || !bytes.HasPrefix(padded, inner) {
			t.Fatalf("inner %x, %v, want %x", padded, err, inner)
		}

		got, err := AppendOuter(nil, o, VXLANOverhead+len(padded))
		if err != nil {
			t.Fatal(err)
		}
		if got, err = AppendVXLAN(got, v); err != nil {
			t.Fatal(err)
		}
		got = append(got, padded...)
		completeChecksum(got, o.headerLen()-UDPLen, ChecksumOffsetUDP)
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v %+v\n got %x\nwant %x", o, v, got, want)
		}
		parsed, _, err := parseOuter(want)
		if err != nil || parsed != o {
			t.Fatalf("parsed %+v, %v, want %+v", parsed, err, o)
		}
	}
}

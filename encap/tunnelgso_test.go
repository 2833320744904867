package encap

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

func TestPutTunnelWireBytes(t *testing.T) {
	h := VNetHdr{
		Flags: VNetNeedsCsum | VNetTunnelCsum, GSOType: VNetGSOTCPv4 | VNetGSOTunnel6,
		HdrLen: 102, GSOSize: 1308, CsumStart: 82, CsumOffset: ChecksumOffsetTCP,
	}
	got := bytes.Repeat([]byte{0xee}, VNetTunnelHdrLen+1)
	h.PutTunnel(got, 54, 0x13e)
	want := []byte{9, 0x41}
	for _, v := range []uint16{102, 1308, 82, 16} {
		want = binary.NativeEndian.AppendUint16(want, v)
	}
	want = append(want, unhex(t, "0000 00000000 0000 0000  3600 3e01  ee")...)
	if !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	if p, err := ParseVNetHdr(got); err != nil || p != h {
		t.Errorf("the ordinary header in it is %+v, %v", p, err)
	}
}

// The outer checksum that is finished before the inner one is right after it.
func TestFinishOuterChecksum(t *testing.T) {
	r := testRand(t)
	for range 2000 {
		inner := randomSuper(r, r.IntN(1400))
		l4, proto := slowL4(inner)
		offset := map[uint8]int{ProtoTCP: ChecksumOffsetTCP, ProtoUDP: ChecksumOffsetUDP}[proto]
		o := outer4()
		if r.IntN(2) == 0 {
			o = outer6()
		}
		padding := r.IntN(3) * r.IntN(50)
		b, err := AppendOuter(nil, o, len(inner)+padding)
		if err != nil {
			t.Fatal(err)
		}
		udp, start := len(b)-UDPLen, len(b)+l4
		b = slices.Concat(b, inner, Padding(padding))
		if !finishOuterChecksum(b, udp, start, offset) {
			t.Fatal("refused")
		}
		if !bytes.Equal(b[udp+UDPLen:len(b)-padding], inner) {
			t.Fatal("the inner packet changed")
		}
		if !FinishChecksum(b[:len(b)-padding], start, offset) {
			t.Fatal("inner checksum refused")
		}
		if !slowTransportOK(b, udp, ProtoUDP) || binary.BigEndian.Uint16(b[udp+6:]) == 0 {
			t.Fatalf("%x", b[:min(len(b), 100)])
		}
	}
	b := make([]byte, 40)
	for _, c := range [][3]int{{-1, 20, 6}, {0, 7, 6}, {0, 41, 0}, {0, 40, 0}, {0, 20, 19}, {0, 20, -1},
		{20, 0, 6}, {36, 39, 0}} {
		if finishOuterChecksum(b, c[0], c[1], c[2]) || !bytes.Equal(b, make([]byte, 40)) {
			t.Errorf("%v was taken", c)
		}
	}
}

package encap

import (
	"bytes"
	"encoding/binary"
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

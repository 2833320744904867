package port

import (
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// superTCP is what a TUN hands out for a TCP superpacket of n segments of size bytes.
func superTCP(n, size int) []byte {
	b := tcp4(n * size)
	h := encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOType: encap.VNetGSOTCPv4, GSOSize: uint16(size),
		CsumStart: 20, CsumOffset: encap.ChecksumOffsetTCP}
	out := make([]byte, encap.VNetHdrLen, encap.VNetHdrLen+len(b))
	h.Put(out)
	return append(out, b...)
}

// TestTurnEndsByItsSegments reads superpackets that cost as much as hundreds of packets each: other ports
// have their turn in between. What is left comes at the next visits, and the offload has moved as many
// packets as there are segments.
func TestTurnEndsByItsSegments(t *testing.T) {
	const count, segments = 8, 1000
	tun := newRecorder(t)
	tun.tso.set(OffloadTSO, 0, true)
	for range count {
		if _, err := unix.Write(tun.fd, superTCP(segments, 10)); err != nil {
			t.Fatal(err)
		}
	}
	r := NewRing()
	for _, want := range []int{3, 3, 2} {
		r.Reset(0)
		if err := tun.readFrom(tun.TUN.fd, r); err != nil {
			t.Fatal(err)
		}
		if r.n != want {
			t.Errorf("%d superpackets are read at one visit, want %d", r.n, want)
		}
	}
	if s := tun.tso.stats(); s.Calls != count || s.Segments != count*segments {
		t.Errorf("the offload moved %d packets in %d calls, want %d in %d", s.Segments, s.Calls,
			count*segments, count)
	}
}

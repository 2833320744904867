package port

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// recorder is an OffloadTUN whose writes arrive as datagrams at a socket.
type recorder struct {
	*OffloadTUN
	fd int
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) })
	r := &recorder{&OffloadTUN{TUN: &TUN{fd: fds[0], fds: fds[:1], name: "test"},
		log: slog.New(slog.DiscardHandler)}, fds[1]}
	r.tcp.set(OffloadTCP, 0, true)
	r.udp.set(OffloadUDP, 0, true)
	return r
}

// written is what the TUN was given, as header and packet.
func (r *recorder) written(t *testing.T) (hdr []encap.VNetHdr, packets [][]byte) {
	t.Helper()
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(r.fd, b)
		if err == unix.EAGAIN {
			return hdr, packets
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := encap.ParseVNetHdr(b[:n])
		if err != nil {
			t.Fatal(err)
		}
		hdr, packets = append(hdr, h), append(packets, bytes.Clone(b[encap.VNetHdrLen:n]))
	}
}

// flowPacket is a UDP packet of a flow, with a number in its payload.
func flowPacket(flow, number, payload int) []byte {
	b := ipv4Packet("10.1.2.7", "10.1.1.5", 28+payload)
	binary.BigEndian.PutUint16(b[20:], uint16(1000+flow))
	binary.BigEndian.PutUint16(b[22:], 2000)
	for i := 28; i+1 < len(b); i += 2 {
		binary.BigEndian.PutUint16(b[i:], uint16(number))
	}
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	in, _ := encap.ParseInner(b)
	binary.BigEndian.PutUint16(b[26:], encap.Fold(encap.PseudoHeaderSum(in.Src, in.Dst, 17, len(b)-20)))
	encap.FinishChecksum(b, 20, 6)
	return b
}

func fillWith(r *Ring, packets [][]byte) []*Packet {
	r.Reset(0)
	for _, b := range packets {
		r.reads = 0
		p := r.Slot()
		copy(p.Space(), b)
		r.Commit(len(b))
	}
	var out []*Packet
	for i := range r.Batch() {
		out = append(out, &r.slots[i])
	}
	return out
}

// TestMergeKeepsOrder interleaves twenty flows, of which some share a place, of mixed
// sizes, and looks at every flow's order in what was written.
func TestMergeKeepsOrder(t *testing.T) {
	rec, ring := newRecorder(t), NewRing()
	var packets [][]byte
	for n := range 10 {
		for flow := range 20 {
			size := 100
			if (n*7+flow)%5 == 0 {
				size = 60
			}
			packets = append(packets, flowPacket(flow, n, size))
		}
	}
	ps := fillWith(ring, packets)
	rec.WriteBatch(ring, ps)
	for i, p := range ps {
		if p.Verdict != Delivered {
			t.Fatalf("packet %d: %v", i, p.Verdict)
		}
		if !bytes.Equal(p.Bytes(), packets[i]) { // which a capture is still to copy
			t.Fatalf("packet %d is another one after it was written", i)
		}
	}
	next := map[uint16]int{}
	seen := 0
	hdrs, written := rec.written(t)
	for i, b := range written {
		size := len(b) - 28
		if hdrs[i].GSOType != 0 {
			size = int(hdrs[i].GSOSize)
		}
		flow := binary.BigEndian.Uint16(b[20:])
		for off := 28; off < len(b); off += size {
			if got := int(binary.BigEndian.Uint16(b[off:])); got != next[flow] {
				t.Fatalf("flow %d: packet %d comes where %d should", flow, got, next[flow])
			}
			next[flow]++
			seen++
		}
	}
	if seen != len(packets) {
		t.Errorf("%d of %d packets were written", seen, len(packets))
	}
	if len(written) == len(packets) {
		t.Error("nothing was merged")
	}
}

// TestMergeKeepsFragmentsInTheirPlace: a later fragment has no ports, and may be of any flow.
func TestMergeKeepsFragmentsInTheirPlace(t *testing.T) {
	rec, ring := newRecorder(t), NewRing()
	later := ipv4Packet("10.1.2.7", "10.1.1.5", 60)
	later[7] = 3 // of its offset
	binary.BigEndian.PutUint16(later[10:], 0)
	binary.BigEndian.PutUint16(later[10:], encap.Checksum(later[:20]))
	rec.WriteBatch(ring, fillWith(ring, [][]byte{flowPacket(0, 0, 100), flowPacket(0, 1, 100), later,
		flowPacket(0, 2, 100)}))
	_, written := rec.written(t)
	var sizes []int
	for _, b := range written {
		sizes = append(sizes, len(b))
	}
	if want := []int{228, 60, 128}; !slices.Equal(sizes, want) {
		t.Errorf("packets of %v bytes were written, want %v", sizes, want)
	}
}

// TestMergeLost has a kernel that refuses superpackets: an eventfd answers EINVAL
// to all but eight bytes. Every packet of the run must be tried by itself, unchanged.
func TestMergeLost(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	tun := &OffloadTUN{TUN: &TUN{fd: fd, fds: []int{fd}, name: "test"}, log: slog.New(slog.DiscardHandler)}
	tun.tcp.set(OffloadTCP, 0, true)
	tun.udp.set(OffloadUDP, 0, true)
	ring := NewRing()
	packets := [][]byte{flowPacket(1, 0, 100), flowPacket(1, 1, 100), flowPacket(1, 2, 100)}
	ps := fillWith(ring, packets)
	tun.WriteBatch(ring, ps)
	if got := tun.udp.stats().State; got != OffloadLost {
		t.Errorf("after EINVAL the offload is %v", got)
	}
	if got := tun.tcp.stats().State; got != OffloadOn {
		t.Errorf("the other offload is %v", got)
	}
	for i, p := range ps {
		if !bytes.Equal(p.Bytes(), packets[i]) {
			t.Errorf("packet %d is changed", i)
		}
		if p.Verdict < verdictDrop {
			t.Errorf("packet %d has no verdict of its own", i)
		}
	}
}

// TestMergeDoesNotAllocate covers a run, a lone packet and a superpacket's way.
func TestMergeDoesNotAllocate(t *testing.T) {
	rec, ring := newRecorder(t), NewRing()
	packets := [][]byte{flowPacket(1, 0, 100), flowPacket(1, 1, 100), flowPacket(2, 0, 60)}
	b := make([]byte, 1<<17)
	ps := fillWith(ring, packets)
	if got := testing.AllocsPerRun(20, func() {
		for i, p := range ps {
			p.Verdict = Pending
			copy(p.Space(), packets[i])
		}
		rec.WriteBatch(ring, ps)
		for {
			if _, err := unix.Read(rec.fd, b); err != nil {
				break
			}
		}
	}); got != 0 {
		t.Errorf("%.1f allocations, want none", got)
	}
}

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

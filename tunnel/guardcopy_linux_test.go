package tunnel

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/netns"
)

// memoryPort notes where the payload of what is written to it lies.
type memoryPort struct {
	Port
	at []uintptr
}

func (m *memoryPort) WriteBatch(_ *Ring, ps []*Packet) {
	for _, p := range ps {
		m.at = append(m.at, uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes()[20:]))))
		p.Delivered()
	}
}

// TestGuardNoCopies: what a port is to write lies where another port has read it: between
// read and write no byte of a payload is moved.
func TestGuardNoCopies(t *testing.T) {
	w := newHotPath(t, 3)
	port := &memoryPort{}
	w.set.host.port, w.set.under4.port = port, port
	for _, ingress := range []bool{false, true} {
		b := ipv4("10.1.1.5", "10.1.2.7", 1000)
		if ingress {
			b = ipv4("10.1.2.7", "10.1.1.5", 1000)
		}
		n := w.fill(b, netip.MustParseAddrPort("192.0.2.2:8285"))
		var read []uintptr
		for i := range w.ring.batch() {
			read = append(read, uintptr(unsafe.Pointer(unsafe.SliceData(w.ring.slots[i].Bytes()[20:]))))
		}
		port.at = nil
		w.move(ingress)
		if len(port.at) != n {
			t.Fatalf("ingress=%t: %d of %d packets were written", ingress, len(port.at), n)
		}
		for i, at := range port.at {
			if at != read[i] {
				t.Errorf("ingress=%t: packet %d was read at %#x and is written from %#x", ingress, i, read[i], at)
			}
		}
	}
}

// within says whether v is a part of b.
func within(v unix.Iovec, b []byte) bool {
	from, lo := uintptr(unsafe.Pointer(v.Base)), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return from >= lo && from+uintptr(v.Len) <= lo+uintptr(len(b))
}

// TestGuardGatherCopies: of a superpacket only headers are made anew; each payload is sent
// from where the TUN's read put it.
func TestGuardGatherCopies(t *testing.T) {
	r := NewRing()
	const segments, size = 40, 1400
	b := tcp4(segments * size)
	p := r.Slot()
	copy(p.Space(), b)
	r.Commit(len(b))
	p.segSize, p.segments, p.partial, p.csumStart, p.csumOffset = size, segments, true, 20, encap.ChecksumOffsetTCP
	w := &runWriter{wire: &sockets{}, maxSegs: 64}
	w.gso.set(OffloadGSO, 0, true)
	r.io.send.begin(p)
	w.gather(r, p)
	u := &r.io.send
	if u.n != segments || u.used != 1+2*segments {
		t.Fatalf("%d segments in %d pieces, want %d in twice as many", u.n, u.used, segments)
	}
	fresh := 0
	for _, v := range u.iov[1:u.used] {
		if !within(v, p.Bytes()) {
			fresh += int(v.Len)
		}
	}
	if want := segments * 40; fresh > want {
		t.Errorf("%d bytes are sent from elsewhere than the packet, want no more than the headers' %d", fresh, want)
	}
}

// TestGuardPackCopies: of packets that share datagrams nothing is made anew, and what is put
// between them is padding, which is nobody's.
func TestGuardPackCopies(t *testing.T) {
	r := NewRing()
	w := &runWriter{wire: &sockets{}, maxSegs: 64}
	w.gso.set(OffloadGSO, 0, true)
	w.pack.set(OffloadPack, 0, true)
	const n = maxReads
	sent := 0
	for i := range n {
		b := ipv4("10.1.1.5", "10.1.2.7", []int{46, 228, 92, 528}[i%4])
		p := r.Slot()
		copy(p.Space(), b)
		r.Commit(len(b))
		p.recv, p.limit = RecvPack, 1472
		if i == 0 {
			r.io.send.begin(p)
		}
		w.gather(r, p)
		sent += len(b)
	}
	u, padding := &r.io.send, 0
	for _, v := range u.iov[1:u.used] {
		if !within(v, r.arena) {
			padding += int(v.Len)
		}
	}
	if u.packets != n || u.n > 12 || u.bytes != sent+padding || padding > sent/padShare {
		t.Errorf("%d packets of %d bytes in %d datagrams, with %d bytes of padding", u.packets, sent, u.n, padding)
	}
}

// TestGuardWholeCopies: a superpacket that leaves whole gets its headers in front of where it was
// read, and is one write.
func TestGuardWholeCopies(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for six := range 2 {
		w, tap := newWholeWire(t, six)
		ring := NewRing()
		b := tcp4(40 * 1400)
		p := ring.Slot()
		copy(p.Space(), b)
		ring.Commit(len(b))
		p.segSize, p.segments, p.partial, p.csumStart, p.csumOffset = 1400, 40, true, 20, encap.ChecksumOffsetTCP
		p.Outer = theirs[six]
		p.Delivered() // as a run is until a send says otherwise
		if !w.whole(ring, p) || p.verdict != delivered {
			t.Fatalf("IPv%d: not whole, or with verdict %d", 4+2*six, p.verdict)
		}
		got := make([]byte, 2*MaxPacket)
		n, err := unix.Read(tap, got)
		if err != nil {
			t.Fatal(err)
		}
		front := encap.VNetTunnelHdrLen + frameHead(six)
		if n != front+len(b) || !bytes.Equal(got[front:n], b) {
			t.Errorf("IPv%d: %d bytes were written, want %d", 4+2*six, n, front+len(b))
		}
		if !bytes.Equal(p.buf[Headroom-front:Headroom+len(b)], got[:n]) {
			t.Errorf("IPv%d: they were written from elsewhere", 4+2*six)
		}
		if got := testing.AllocsPerRun(10, func() {
			_ = w.whole(ring, p)
			_, _ = unix.Read(tap, got)
		}); got > 0 {
			t.Errorf("IPv%d: %.0f allocations", 4+2*six, got)
		}
	}
}

// newWholeWire is path raw's wire at ours with a next hop to theirs, and what is written to its TAP.
func newWholeWire(t testing.TB, six int) (w *frameWire, tapEnd int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	w = &frameWire{&frames{local: ours[six]}, &tap{fd: fds[0], name: "tap", log: slog.New(slog.DiscardHandler)}, &sockets{}}
	w.tap.offload.set(OffloadTunnel, 0, true)
	w.tap.use.Store(true)
	w.frames.hops.Store(&hops{})
	w.frames.setNextHops(map[netip.Addr]NextHop{theirs[six].Addr(): {Local: encap.MAC{2, 0, 0, 0, 0, 1}, Remote: encap.MAC{2, 0, 0, 0, 0, 2}}})
	(*w.frames.hops.Load())[theirs[six].Addr()].confirm.Store(1 << 62)
	return w, fds[1]
}

// TestGuardMergeCopies: a superpacket is written from where its packets were read.
func TestGuardMergeCopies(t *testing.T) {
	r := NewRing()
	tun := &OffloadTUN{}
	tun.tcp.set(OffloadTCP, 0, true)
	const n, size = 40, 1400
	m := &r.io.merge
	for i := range n {
		b := tcp4(size)
		binary.BigEndian.PutUint32(b[24:], uint32(i*size))
		encap.FinishChecksum(b, 20, encap.ChecksumOffsetTCP)
		p := r.Slot()
		copy(p.Space(), b)
		r.Commit(len(b))
		m.add(tun, p)
	}
	var runs int
	for k := range m.runs {
		o := &m.runs[k]
		if o.run.Segments() == 0 {
			continue
		}
		runs++
		if got := o.run.Segments(); got != n {
			t.Errorf("a run of %d packets, want %d", got, n)
		}
		for _, v := range o.iov[1 : 1+o.run.Segments()] { // 0 is the virtio-net header
			if !within(v, r.arena) {
				t.Errorf("a piece of %d bytes is not where it was read", v.Len)
			}
		}
	}
	if runs != 1 {
		t.Errorf("%d runs of one flow, want 1", runs)
	}
}

// tcp4 is an inner TCP packet, or superpacket, with a partial checksum.
func tcp4(payload int) []byte {
	b := ipv4("10.1.1.5", "10.1.2.7", 40+payload)
	b[9], b[32], b[33] = encap.ProtoTCP, 5<<4, 0x10 // header of 20 bytes, ACK
	binary.BigEndian.PutUint16(b[24:], 0)           // where ipv4 has UDP's length
	binary.BigEndian.PutUint16(b[34:], 1000)
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	sum := encap.PseudoHeaderSum(addr("10.1.1.5"), addr("10.1.2.7"), encap.ProtoTCP, 20+payload)
	binary.BigEndian.PutUint16(b[36:], encap.Fold(sum))
	return b
}

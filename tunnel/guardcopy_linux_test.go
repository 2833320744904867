package tunnel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/encap"
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
	s := &OffloadSocket{runWriter: runWriter{maxSegs: 64}}
	s.wire = s
	s.gso.set(OffloadGSO, 0, true)
	r.io.send.begin(p)
	s.gather(r, p)
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

package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// TestSegmentsOfChangedHeader: a superpacket's header is read before this node changes a field in it. What
// its segments' checksums have in common is of the header as it is when they leave.
func TestSegmentsOfChangedHeader(t *testing.T) {
	const mss, segments = 1000, 3
	put := func(w *worker, b []byte) *port.Packet {
		w.ring.Reset(0)
		p := w.ring.Slot()
		copy(p.Space(), b)
		w.ring.Commit(len(b))
		p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = mss, true, 20, encap.ChecksumOffsetTCP
		return p
	}
	checked := func(name string, got [][]byte) {
		if len(got) != segments {
			t.Errorf("%s: %d segments, want %d", name, len(got), segments)
		}
		for i, b := range got {
			if in, err := encap.ParseInner(b); err != nil || encap.Checksum(b[:20]) != 0 || !encap.ChecksumOK(b, in) {
				t.Errorf("%s: segment %d is % x, %v", name, i, b[:min(len(b), 40)], err)
			}
		}
	}

	w, wire := newHotPath(t, 3), &capture{tb: t}
	w.set.under4 = &attachedPort{port: wire, role: RoleUnderlay, super: supers(false)}
	w.from = &attachedPort{port: nullPort{}, role: RolePod, pod: new(pod), addrs: []netip.Addr{addr("10.1.1.5")}}
	put(w, tcp4(segments*mss))
	w.move(false)
	checked("a pod's, whose TTL counts down", wire.got)

	w = newHotPath(t, 3)
	host := &capture{tb: t}
	w.set.host.port = host
	b := tcp4(segments * mss)
	copy(b[12:], []byte{10, 1, 2, 7, 10, 1, 1, 5})
	encap.SetECN(b, encap.ECT0)
	p := put(w, b)
	p.Outer, p.OuterECN = netip.MustParseAddrPort("192.0.2.2:8285"), encap.CE
	w.move(true)
	checked("one with a congestion mark, to a port that takes no superpackets", host.got)
}

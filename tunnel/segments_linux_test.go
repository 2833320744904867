package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// TestSuperpacketOfTooManySegments: a pod, or a peer on a virtual wire, chooses how many packets we are to
// make of one.
func TestSuperpacketOfTooManySegments(t *testing.T) {
	for name, ingress := range map[string]bool{"egress": false, "ingress": true} {
		for n, want := range map[int]uint64{port.MaxSegments: 0, port.MaxSegments + 1: 1, 60000: 1} {
			w := newHotPath(t, 3)
			whole := supers(false)
			w.set.host.super, w.set.under4.super = whole, whole
			w.ring.Reset(0)
			b := tcp4(n)
			if ingress {
				copy(b[12:], []byte{10, 1, 2, 7, 10, 1, 1, 5})
			}
			p := w.ring.Slot()
			copy(p.Space(), b)
			p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = 1, true, 20, encap.ChecksumOffsetTCP
			p.Outer = netip.MustParseAddrPort("192.0.2.2:8285")
			w.ring.Commit(len(b))
			w.move(ingress)
			var s Stats
			w.totals.addTo(&s)
			f := s.Egress
			if ingress {
				f = s.Ingress
			}
			if f.Drops[port.DropSegments] != want || f.Delivered != uint64(n)*(1-want) {
				t.Errorf("%s, %d segments: %d delivered, and %d dropped for it, want %d", name, n, f.Delivered,
					f.Drops[port.DropSegments], want)
			}
		}
	}
}

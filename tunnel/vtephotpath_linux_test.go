package tunnel

import (
	"net/netip"
	"testing"

	"weft/encap"
)

// vtepHotPath is newHotPath in format vxlan.
func vtepHotPath(tb testing.TB) *worker {
	tb.Helper()
	w := newHotPath(tb, 3)
	s := testSpec()
	s.VNI, s.MAC4, s.MAC6 = 7, encap.MAC{2, 1}, encap.MAC{2, 2}
	for i := range s.Peers {
		s.Peers[i].MAC = encap.MAC{2, 3, byte(i)}
	}
	t, err := NewTable(encap.FormatVXLAN, s)
	if err != nil {
		tb.Fatal(err)
	}
	w.table = t
	return w
}

// vtepFrame is a datagram for this node.
func vtepFrame(tb testing.TB, inner []byte) []byte {
	tb.Helper()
	b, err := encap.AppendVXLAN(nil, encap.VXLAN{VNI: 7,
		Ethernet: encap.Ethernet{Dst: encap.MAC{2, 1}, Type: encap.EtherTypeIPv4}})
	if err != nil {
		tb.Fatal(err)
	}
	return append(b, inner...)
}

func TestVXLANHotPathDoesNotAllocate(t *testing.T) {
	w := vtepHotPath(t)
	peer := netip.MustParseAddrPort("192.0.2.2:8472")
	noDF := ipv4Packet("10.1.1.5", "10.1.4.7", 1400)
	noDF[6] = 0
	for name, tt := range map[string]struct {
		packet  []byte
		ingress bool
	}{
		"egress":     {ipv4Packet("10.1.1.5", "10.1.2.7", 200), false},
		"fragmented": {noDF, false},
		"ingress":    {vtepFrame(t, ipv4Packet("10.1.2.7", "10.1.1.5", 200)), true},
		"malformed":  {vtepFrame(t, nil), true},
	} {
		got := testing.AllocsPerRun(20, func() {
			w.fill(tt.packet, peer)
			w.move(tt.ingress)
		})
		if got != 0 {
			t.Errorf("%s: %.1f allocations a batch, want none", name, got)
		}
	}
}

// FuzzVXLANIngress gives a node whatever a peer may send: nothing but what is for this node's VTEP is
// delivered, and all of it is accounted for.
func FuzzVXLANIngress(f *testing.F) {
	f.Add(vtepFrame(f, ipv4Packet("10.1.2.7", "10.1.1.5", 60)))
	f.Add(vtepFrame(f, ipv4Packet("10.1.2.7", "10.1.1.5", 60))[:30])
	f.Add(ipv4Packet("10.1.2.7", "10.1.1.5", 60))
	w := vtepHotPath(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 9000 {
			return
		}
		before, peer := w.tally.ingress, netip.MustParseAddrPort("192.0.2.2:8472")
		n := w.fill(b, peer)
		w.flow = &w.tally.ingress
		w.ingress()
		now := w.tally.ingress
		dropped := uint64(0)
		for r := range now.Drops {
			dropped += now.Drops[r] - before.Drops[r]
		}
		delivered := now.Delivered - before.Delivered
		if delivered+dropped != uint64(n) || now.Received-before.Received != uint64(n) {
			t.Errorf("%d read, %d delivered, %d dropped", n, delivered, dropped)
		}
		h, inner, err := encap.ParseVXLAN(b)
		if delivered > 0 && (err != nil || h.VNI != 7 || h.Dst != encap.MAC{2, 1} || len(inner) < encap.IPv4Len) {
			t.Errorf("delivered: %+v, %v", h, err)
		}
	})
}

package tunnel

import (
	"bytes"
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// FuzzIngress gives a worker a datagram from a peer that anybody may have written, with a description as a
// virtual wire gives one: partial says that the checksum at start+offset is partial, and size where a
// superpacket is to be cut. Nothing panics, nothing beside the datagram is looked at, and the books balance.
func FuzzIngress(f *testing.F) {
	pods := ipv4Packet("10.1.2.7", "10.1.1.5", 300)
	super := tcp4(3000)
	copy(super[12:], []byte{10, 1, 2, 7, 10, 1, 1, 5})
	f.Add(pods, uint8(encap.CE), false, uint16(0), uint16(0), uint16(0))
	f.Add(append(bytes.Repeat(pods, 4), 0, 0, 0), uint8(0), false, uint16(0), uint16(0), uint16(0))
	f.Add(super, uint8(encap.ECT0), true, uint16(20), uint16(16), uint16(1000))
	f.Add(super, uint8(0), true, uint16(20), uint16(16), uint16(0))
	f.Add(super, uint8(0), true, uint16(20), uint16(6), uint16(10))
	// Behind the datagram is a packet for a pod: a worker that reads beyond the end finds one.
	behind := bytes.Repeat(ipv4Packet("10.1.2.7", "10.1.1.5", 64), 100)
	w := newHotPath(f, 3)
	w.table.spec.MTU = 1472
	w.set.host.super = supers(true)
	f.Fuzz(func(t *testing.T, b []byte, ecn uint8, partial bool, start, offset, size uint16) {
		if len(b) > port.MaxPacket || !partial && size > 0 {
			return // a port says of no superpacket that its checksum is whole
		}
		w.ring.Reset(0)
		p := w.ring.Slot()
		copy(p.Space()[copy(p.Space(), b):], behind)
		p.Outer, p.OuterECN = netip.MustParseAddrPort("192.0.2.2:8285"), encap.ECN(ecn&3)
		p.Partial, p.CsumStart, p.CsumOffset, p.SegSize = partial, int(start), int(offset), int(size)
		w.ring.Commit(len(b))
		port := &capture{tb: t}
		w.set.host.port = port
		before := w.tally.ingress
		w.flow = &w.tally.ingress
		w.ingress()
		checkBooks(t, before, w.tally.ingress, len(port.got))
	})
}

// checkBooks sees that every packet was delivered or dropped for a reason.
func checkBooks(t *testing.T, before, after Flow, delivered int) {
	t.Helper()
	n := after.Delivered - before.Delivered
	if n != uint64(delivered) {
		t.Fatalf("%d packets delivered, and %d counted", delivered, n)
	}
	for r := range after.Drops {
		n += after.Drops[r] - before.Drops[r]
	}
	if got := after.Received - before.Received; got != n {
		t.Fatalf("%d packets received, %d delivered or dropped", got, n)
	}
}

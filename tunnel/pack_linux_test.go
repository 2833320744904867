package tunnel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// receiveAll has a worker receive one datagram from a peer, and returns what a pod gets.
func receiveAll(t *testing.T, from string, ecn encap.ECN, datagram []byte) (got [][]byte, f Flow) {
	t.Helper()
	w := newHotPath(t, 3)
	host := &capture{tb: t}
	w.set.host.port, w.set.host.super = host, supers(true)
	w.ring.Reset(0)
	p := w.ring.Slot()
	p.Outer, p.OuterECN = netip.AddrPortFrom(addr(from), 8285), ecn
	w.ring.Commit(copy(p.Space(), datagram))
	w.flow = &w.tally.ingress
	w.ingress()
	checkBooks(t, Flow{}, w.tally.ingress, len(host.got))
	return host.got, w.tally.ingress
}

// numbered is a packet to a pod of ours, of size bytes, that says who it is.
func numbered(src string, n, size int) []byte {
	b := ipv4Packet(src, "10.1.1.5", size)
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	return b
}

// TestPackedDatagrams: each packet of a datagram is judged by itself; what is neither packet nor
// padding is nobody's, and costs nothing that came before.
func TestPackedDatagrams(t *testing.T) {
	one, two, three := numbered("10.1.2.7", 1, 60), numbered("10.1.2.8", 2, 28), numbered("10.1.2.9", 3, 100)
	foreign := numbered("10.1.3.7", 4, 60)
	marked := bytes.Clone(one)
	marked[1] = byte(encap.ECT0)
	pad := make([]byte, 40)
	for _, tt := range []struct {
		name  string
		from  string
		ecn   encap.ECN
		parts [][]byte
		want  string // the numbers of those that arrive
		drops string
	}{
		{name: "one", parts: [][]byte{one}, want: "[1]"},
		{name: "three", parts: [][]byte{one, two, three}, want: "[1 2 3]"},
		{name: "padded", parts: [][]byte{one, two, pad}, want: "[1 2]"},
		{name: "behind padding there is nothing", parts: [][]byte{one, pad, two}, want: "[1]"},
		{name: "one byte of padding", parts: [][]byte{one, {0}}, want: "[1]"},
		{name: "one byte of a packet", parts: [][]byte{one, {0x45}}, want: "[1]", drops: "malformed"},
		{name: "cut short", parts: [][]byte{one, two[:27]}, want: "[1]", drops: "malformed"},
		{name: "neither", parts: [][]byte{one, {0x50, 1, 2, 3}, two}, want: "[1]"},
		{name: "a foreign one in the middle", parts: [][]byte{one, foreign, three}, want: "[1 3]",
			drops: "foreign_source"},
		{name: "a foreign one in front", parts: [][]byte{foreign, two}, want: "[2]", drops: "foreign_source"},
		{name: "nobody says that it packs", from: "192.0.2.3", parts: [][]byte{foreign, one}, want: "[4]"},
		{name: "a stranger", from: "203.0.113.9", parts: [][]byte{one, two}, want: "[]", drops: "unknown_peer"},
		{name: "a mark that only one can carry", ecn: encap.CE, parts: [][]byte{one, marked, two}, want: "[1]",
			drops: "ecn ecn"},
	} {
		from := "192.0.2.2"
		if tt.from != "" {
			from = tt.from
		}
		got, f := receiveAll(t, from, tt.ecn, bytes.Join(tt.parts, nil))
		numbers, drops := []int{}, []string{}
		for _, b := range got {
			numbers = append(numbers, int(binary.BigEndian.Uint16(b[4:])))
		}
		for r, n := range f.Drops {
			for range n {
				drops = append(drops, port.DropReason(r).String())
			}
		}
		if fmt.Sprint(numbers) != tt.want || fmt.Sprint(drops) != "["+tt.drops+"]" {
			t.Errorf("%s: %v arrived, want %v; dropped %v, want [%s]", tt.name, numbers, tt.want, drops, tt.drops)
		}
	}
}

// TestManyInOneDatagram: as many packets as a datagram can hold all arrive, in order, though a
// batch has not as many slots.
func TestManyInOneDatagram(t *testing.T) {
	const size = 28
	var datagram []byte
	n := 0
	for ; len(datagram)+size <= 65507; n++ {
		datagram = append(datagram, numbered("10.1.2.7", n, size)...)
	}
	got, _ := receiveAll(t, "192.0.2.2", 0, datagram)
	if len(got) != n {
		t.Fatalf("%d of %d packets arrived", len(got), n)
	}
	for i, b := range got {
		if !bytes.Equal(b, numbered("10.1.2.7", i, size)) {
			t.Fatalf("in place %d: %x", i, b)
		}
	}
}

// capture is a port that keeps what a program would get, packet by packet. It cuts superpackets as a port
// does that sends runs.
type capture struct {
	port.Port
	tb  testing.TB
	got [][]byte
}

func (c *capture) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, p := range ps {
		p.Delivered()
		if p.SegSize == 0 {
			b := bytes.Clone(p.Bytes())
			if p.Partial {
				encap.FinishChecksum(b, p.CsumStart, p.CsumOffset)
			}
			c.got = append(c.got, b)
			continue
		}
		super, r, ok := p.ParseSuper()
		if !ok {
			c.tb.Fatal(r)
		}
		for k := range super.Segments {
			from, to := super.Payload(k)
			c.got = append(c.got, append(super.AppendHeader(nil, p.Bytes(), k, false), p.Bytes()[from:to]...))
		}
	}
}

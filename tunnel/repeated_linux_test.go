package tunnel

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// TestRepeatedIsJudgedAlike receives a packet and one that repeats it but for a few bytes, in one batch and
// in two. Whether the second is taken as a repetition of the first must make no difference to anybody.
func TestRepeatedIsJudgedAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	together, apart := newHotPath(t, 3), newHotPath(t, 3)
	for _, w := range []*worker{together, apart} {
		w.set.host.super = supers(true) // which takes partial checksums
	}
	const rounds = 20000
	var passed, repeated int
	for range rounds {
		first := tcp4(100)
		copy(first[12:], []byte{10, 1, 2, 7, 10, 1, 1, 5})
		sum := encap.PseudoHeaderSumRaw(first[12:20], encap.ProtoTCP, 120)
		binary.BigEndian.PutUint16(first[36:], encap.Fold(sum))
		binary.BigEndian.PutUint16(first[10:], 0)
		binary.BigEndian.PutUint16(first[10:], encap.Checksum(first[:20]))
		first[1] = byte(r.IntN(4))
		other := slices.Clone(first) // so that something is queued, whatever becomes of the first
		other[21]++
		if r.IntN(4) == 0 {
			first[r.IntN(44)] ^= byte(1 << r.IntN(8))
		}
		second := slices.Clone(first)
		for range r.IntN(3) {
			second[r.IntN(44)] ^= byte(1 << r.IntN(8))
		}
		if r.IntN(8) == 0 {
			second = second[:len(second)-r.IntN(20)]
		}
		if r.IntN(8) == 0 {
			second = append(second, make([]byte, r.IntN(4))...)
		}
		from := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:8285"),
			netip.MustParseAddrPort("192.0.2.2:8285")}
		if r.IntN(8) == 0 {
			from[1] = netip.MustParseAddrPort("203.0.113.9:8285")
		}
		ecn := [2]encap.ECN{encap.ECN(r.IntN(4))}
		if ecn[1] = ecn[0]; r.IntN(8) == 0 {
			ecn[1] = encap.ECN(r.IntN(4))
		}

		put := func(w *worker, i int) *port.Packet {
			b := [][]byte{other, first, second}[i]
			p := w.ring.Slot()
			copy(p.Space(), b)
			p.Outer, p.OuterECN = from[max(0, i-1)], ecn[max(0, i-1)]
			w.ring.Commit(len(b))
			return p
		}
		together.ring.Reset(0)
		put(together, 0)
		put(together, 1)
		a := put(together, 2)
		together.move(true)
		var b *port.Packet
		for i := range 3 {
			apart.ring.Reset(0)
			b = put(apart, i)
			apart.move(true)
		}
		if a.Verdict != b.Verdict {
			t.Fatalf("%x after %x: verdict %d together, %d apart", second, first, a.Verdict, b.Verdict)
		}
		if a.Verdict != port.Delivered {
			continue
		}
		passed++
		if string(a.Bytes()) != string(b.Bytes()) || a.Info.Inner != b.Info.Inner ||
			a.Size != b.Size || a.SingleReader != b.SingleReader || a.Partial != b.Partial ||
			a.CsumStart != b.CsumStart || a.CsumOffset != b.CsumOffset {
			t.Fatalf("%x after %x: together %+v, apart %+v", second, first, a, b)
		}
		q := &together.ring.Batch()[1]
		if q.Verdict == port.Delivered && q.Partial && q.Info.Repeated(q.Bytes(), a.Bytes()) &&
			from[0] == from[1] &&
			ecn[0] == ecn[1] {
			repeated++
		}
	}
	var a, b Stats
	together.totals.addTo(&a)
	apart.totals.addTo(&b)
	if a.Ingress != b.Ingress || a.Completed != b.Completed {
		t.Errorf("together %+v, %d partial; apart %+v, %d", a.Ingress, a.Completed, b.Ingress, b.Completed)
	}
	for i, p := range together.table.peers {
		if x, y := &p.state.rxPackets, &apart.table.peers[i].state.rxPackets; x.Load() != y.Load() {
			t.Errorf("from %s %d packets together, %d apart", p.spec.Name, x.Load(), y.Load())
		}
	}
	if repeated < rounds/10 || passed-repeated < rounds/10 || passed == rounds {
		t.Errorf("of %d packets %d passed, %d as repetitions: this compares too little", rounds, passed, repeated)
	}
}

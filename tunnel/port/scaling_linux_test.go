package port

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// countingWire takes every run, so that what is left is how runs are formed.
type countingWire struct{ sends int }

func (c *countingWire) address(_ *Ring, _ *sendRun, _ *messageHeader, _ []unix.Iovec, _, _ int) {
	c.sends++
}

func (c *countingWire) whole(*runWriter, *Ring, *Packet) bool { return false }

func takeAll(_ int, ms []messageHeader) (int, unix.Errno) { return len(ms), 0 }

// BenchmarkRuns is what it costs to sort a batch into runs, a packet, and how many packets leave in a send:
// by flows, which are spread evenly over peers, each of one size.
func BenchmarkRuns(b *testing.B) {
	for _, c := range []struct {
		name                       string
		batch, flows, peers, sizes int
		recv                       Recv
	}{
		{"one", MaxReads, 1, 1, 1, 0}, {"equal", MaxReads, 100, 1, 1, 0}, {"mixed", MaxReads, 100, 10, 5, 0},
		{"packed", MaxReads, 100, 10, 5, RecvPack}, {"peers", MaxReads, 10000, 1000, 1, 0},
		{"full ring", BatchSize, 10000, 1000, 5, RecvPack},
	} {
		b.Run(fmt.Sprintf("batch=%d/flows=%d/peers=%d/sizes=%s", c.batch, c.flows, c.peers, c.name),
			func(b *testing.B) {
				var wire countingWire
				w := newRunWriter(&wire, UDPOptions{}, "crowd", true)
				w.sendmmsg = takeAll
				ring, rng := NewRing(), rand.New(rand.NewPCG(1, 2))
				ring.Reset(0)
				var ps []*Packet
				for range c.batch { // they lie in the ring's memory as a batch does that was read
					flow := rng.IntN(c.flows)
					size := 100 + flow/c.peers%c.sizes*16
					end := ring.used + Headroom + size
					p := &Packet{state: state{buf: ring.arena[ring.used:end:end]}}
					p.Reset()
					p.end = p.off + size
					ring.advance(size)
					peer := flow % c.peers
					p.Outer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(peer >> 8), byte(peer)}), 8285)
					p.Limit, p.Recv = 1472, c.recv
					ps = append(ps, p)
				}
				batches := 0
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i%len(ps) == 0 { // an iteration is one packet
						for _, p := range ps {
							p.Verdict = Pending
						}
						w.writeRuns(ring, ps)
						batches++
					}
				}
				b.ReportMetric(float64(len(ps)*batches)/float64(wire.sends), "pkts/send")
			})
	}
}

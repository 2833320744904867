package port

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// countingWire takes every run, so that what is left is how runs are formed.
type countingWire struct{ sends, datagrams int }

func (c *countingWire) address(_ *Ring, _ *sendRun, _ *messageHeader, _ []unix.Iovec, n, _ int) {
	c.sends++
	c.datagrams += n
}

func (c *countingWire) whole(*runWriter, *Ring, *Packet) bool { return false }

func takeAll(_ int, ms []messageHeader) (int, unix.Errno) { return len(ms), 0 }

// crowd is packets of many flows to many peers, as writeRuns gets them.
type crowd struct {
	w    *runWriter
	wire countingWire
	ring *Ring
	ps   []*Packet

	batches int
}

// newCrowd draws batches of n packets at random from flows that are spread evenly over peers, each
// flow of one size, of which there are sizes.
func newCrowd(n, flows, peers, lanes, sizes int, recv Recv) *crowd {
	rng := rand.New(rand.NewPCG(1, 2))
	c := crowdOf(n, func() (peer, lane, size int) {
		flow := rng.IntN(flows)
		if lanes > 1 {
			lane = 1 + flow/peers/sizes%lanes
		}
		return flow % peers, lane, 100 + flow/peers%sizes*16
	})
	for _, p := range c.ps {
		p.Recv = recv
	}
	return c
}

// crowdOf is n packets, for each of which draw says the peer, the lane and the size in bytes. They lie in
// the ring's memory as a batch does that was read.
func crowdOf(n int, draw func() (peer, lane, size int)) *crowd {
	c := &crowd{ring: NewRing()}
	c.w = newRunWriter(&c.wire, UDPOptions{}, "crowd", true)
	c.w.sendmmsg = takeAll
	c.ring.Reset(0)
	for range n {
		peer, lane, size := draw()
		end := c.ring.used + Headroom + size
		p := &Packet{state: state{buf: c.ring.arena[c.ring.used:end:end]}}
		p.Renew()
		p.end = p.off + size
		c.ring.take(size)
		p.Outer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(peer >> 16), byte(peer >> 8), byte(peer)}),
			8285)
		p.Limit, p.Lane = 1472, uint8(lane)
		c.ps = append(c.ps, p)
	}
	return c
}

func (c *crowd) write() {
	for _, p := range c.ps {
		p.Verdict = Pending
	}
	c.w.writeRuns(c.ring, c.ps)
	c.batches++
}

// BenchmarkRuns is what it costs to sort a batch into runs, a packet, and how many packets leave
// in a send: by flows, peers, lanes and sizes. A batch has at most 64 packets from a TUN.
func BenchmarkRuns(b *testing.B) {
	for _, batch := range []int{MaxReads, BatchSize} {
		for _, flows := range []int{1, 10, 100, 1000, 10000} {
			for _, peers := range []int{1, 10, 100, 1000} {
				for _, lanes := range []int{1, 8} {
					for _, kind := range []struct {
						name  string
						sizes int
						recv  Recv
					}{{"equal", 1, 0}, {"mixed", 5, 0}, {"packed", 5, RecvPack}} {
						if peers > flows || lanes > 1 && flows/peers < lanes || kind.sizes > flows/peers {
							continue
						}
						b.Run(fmt.Sprintf("batch=%d/flows=%d/peers=%d/lanes=%d/sizes=%s", batch, flows, peers, lanes,
							kind.name), func(b *testing.B) {
							runs(b, newCrowd(batch, flows, peers, lanes, kind.sizes, kind.recv))
						})
					}
				}
			}
		}
	}
}

func runs(b *testing.B, c *crowd) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(c.ps) == 0 { // an iteration is one packet
			c.write()
		}
	}
	b.ReportMetric(float64(len(c.ps)*c.batches)/float64(c.wire.sends), "pkts/send")
}

// BenchmarkHops is what it costs to look up a next hop, in random order so that caches do not help.
func BenchmarkHops(b *testing.B) {
	for _, peers := range []int{10, 1000, 100000} {
		f := &frames{local: netip.MustParseAddrPort("192.0.2.1:8285")}
		f.hops.Store(&hops{})
		next, addrs := map[netip.Addr]NextHop{}, make([]netip.Addr, peers)
		for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(peers) {
			addrs[i] = netip.AddrFrom4([4]byte{198, byte(16 + n>>16), byte(n >> 8), byte(n)})
			next[addrs[i]] = NextHop{Local: encap.MAC{2}, Remote: encap.MAC{4}}
		}
		f.setNextHops(next)
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if h, _ := f.hop(addrs[i%peers], 0); h == nil {
					b.Fatal("no next hop")
				}
			}
		})
	}
}

package port

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSendPeers is what it costs a packet to leave by a UDP socket: a batch of 64 packets to many peers,
// which are addresses of the loopback where nobody reads.
func BenchmarkSendPeers(b *testing.B) {
	all, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort("0.0.0.0:0")})
	if err != nil {
		b.Fatal(err)
	}
	defer all.Close()
	s, err := ListenOffload(UDPOptions{Local: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, size := range []int{64, 1400} {
		for _, peers := range []int{1, 8, 64, 1000} {
			b.Run(fmt.Sprintf("size=%d/peers=%d", size, peers), func(b *testing.B) {
				next := 0
				c := crowdOf(MaxReads, func() (int, int, int) { return 0, 0, size })
				b.ReportAllocs()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				began := threadTime(b)
				for i := 0; b.Loop(); i++ {
					if i%len(c.ps) > 0 { // an iteration is one packet
						continue
					}
					for _, p := range c.ps {
						next = (next + 1) % peers
						p.Outer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(next >> 8), byte(next)}),
							all.local.Port())
						p.Verdict = Pending
					}
					c.ring.Reset(0)
					s.WriteBatch(c.ring, c.ps)
				}
				b.ReportMetric(float64(threadTime(b)-began)/float64(b.N), "cpu-ns/op")
				for _, p := range c.ps {
					if p.Verdict != Delivered {
						b.Fatalf("a packet has verdict %d", p.Verdict)
					}
				}
			})
		}
	}
}

// threadTime is the processor time that the thread has used, in nanoseconds: a busy machine changes it
// little.
func threadTime(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

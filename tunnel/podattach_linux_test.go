package tunnel_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// BenchmarkAttachPod attaches a pod with two addresses beside 1,000 others, and detaches it.
func BenchmarkAttachPod(b *testing.B) {
	const pods = 1000
	n := start(b, spec(), tunnel.Config{Workers: 2})
	addrs := func(i int) []netip.Addr {
		return []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 16 + byte(i>>8), byte(i)}),
			netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})}
	}
	attach := func(i int) tunnel.PortID {
		p, err := tunneltest.New(netip.AddrPort{}, 1, 64)
		if err != nil {
			b.Fatal(err)
		}
		id, err := n.AttachPod(p, tunnel.PodOptions{Addrs: addrs(i)})
		if err != nil {
			b.Fatal(err)
		}
		return id
	}
	for i := range pods {
		attach(i)
	}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		id := attach(pods)
		took = append(took, time.Since(began))
		if err := n.Detach(id); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns/attach")
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns/attach")
}

package tunnel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"weft/encap"
)

// tableSpec is a table of many peers, each with a /24.
func tableSpec(peers int) Spec {
	s := testSpec()
	s.Peers = nil
	for i := range peers {
		n := i + 1<<16
		s.Peers = append(s.Peers, PeerSpec{
			Name: "peer", Weft: true,
			Addr: netip.AddrFrom4([4]byte{198, byte(16 + i>>16), byte(i >> 8), byte(i)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(
				netip.AddrFrom4([4]byte{byte(20 + n>>16), byte(n >> 8), byte(n), 0}), 24)},
		})
	}
	return s
}

// BenchmarkTable is what peers cost: to build the table that a change of the lease set swaps in, to look up
// an inner destination and an outer source, in random order so that caches do not help.
func BenchmarkTable(b *testing.B) {
	for _, peers := range []int{10, 100, 1000, 10000, 100000} {
		s := tableSpec(peers)
		b.Run(fmt.Sprintf("op=build/peers=%d", peers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewTable(encap.FormatIP, s); err != nil {
					b.Fatal(err)
				}
			}
		})
		t, err := NewTable(encap.FormatIP, s)
		if err != nil {
			b.Fatal(err)
		}
		order := rand.New(rand.NewPCG(1, 2)).Perm(peers)
		b.Run(fmt.Sprintf("op=route/peers=%d", peers), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if p, ok := t.routes.Lookup(s.Peers[order[i%peers]].Subnets[0].Addr()); !ok || p == nil {
					b.Fatal("no route")
				}
			}
		})
		b.Run(fmt.Sprintf("op=sender/peers=%d", peers), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if t.senders[s.Peers[order[i%peers]].Addr] == nil {
					b.Fatal("no sender")
				}
			}
		})
	}
}

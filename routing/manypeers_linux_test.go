package routing

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/netns"
)

// BenchmarkReconcile compares the kernel with what 1,000 peers need, when all is in place. first-ms is what
// it took to make that.
func BenchmarkReconcile(b *testing.B) {
	const peers = 1000
	for _, backend := range []string{
		`"Type":"udp"`, `"Type":"vxlan"`, `"Type":"vxlan","DirectRouting":true`,
		`"Type":"vxlan","Userspace":"always"`,
		`"Type":"host-gw"`, `"Type":"wireguard"`, `"Type":"ipip"`,
	} {
		b.Run(backend, func(b *testing.B) {
			netns.TUN(b)
			netns.EnterAlone(b)
			netns.EtherLink(b, "eth0", 1500, "172.16.0.1/16")
			k, err := kernel.OpenKernel()
			if err != nil {
				b.Fatal(err)
			}
			defer k.Close()
			c := BackendConfig{Kernel: k, Node: "a",
				UnderlayOptions: underlay.Options{IPv4: true, Interfaces: []string{"eth0"}}}
			if c.Network, err = Parse([]byte(`{"Network":"10.64.0.0/12","Backend":{` + backend + `}}`)); err != nil {
				b.Fatal(err)
			}
			if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
				b.Fatal(err)
			}
			n, err := NewNode(b.Context(), c)
			if err != nil {
				b.Fatal(err)
			}
			defer n.Close()
			record := func(i int) (r lease.Record) {
				hi, lo := byte(i/250), byte(i%250+1)
				r.V4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 + hi, lo, 0}), 24)
				r.PublicIP, r.BackendType = netip.AddrFrom4([4]byte{172, 16, hi, lo}), n.RecordType()
				switch r.BackendType {
				case typeVXLAN:
					r.BackendData = vtepData(1, kernel.MAC{14, 0, 0, 0, hi, lo})
				case typeWireGuard:
					r.BackendData = wireGuardData([32]byte{1, hi, lo}, DefaultWireGuardPort)
				}
				return r
			}
			set := lease.Set{Config: c.Network.NetworkConfig, Own: record(0)}
			for i := range peers {
				set.Peers = append(set.Peers, record(i+1))
			}
			began := time.Now()
			if err := n.Apply(b.Context(), set); err != nil || n.Status().Peers != peers {
				b.Fatal(fmt.Sprint(n.Status().Peers), err)
			}
			first := time.Since(began)
			for b.Loop() {
				if err := n.Apply(b.Context(), set); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
		})
	}
}

package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/test/await"
	"weft/tunnel/port"
)

// TestIPIPInUserSpace has two nodes publish what flannel's do, name what the underlay's device must not do,
// and follow the underlay's address. TestMatrix has such nodes carry packets.
func TestIPIPInUserSpace(t *testing.T) {
	nodes := hosts(t, 2)
	for _, n := range nodes {
		n.own.V6, n.own.PublicIPv6 = ipipPeer(2).V6, ipipPeer(2).PublicIPv6
		n.u = openKernelBackend(t, n.k,
			`{"Network":"10.5.0.0/16","Backend":{"Type":"ipip","Userspace":"always"}}`, nil).Node
		start(t, n.u)
		if n.own.BackendType = n.u.RecordType(); n.own.BackendType != "ipip" {
			t.Errorf("record type %q", n.own.BackendType)
		}
		if n.own.BackendData, n.own.BackendV6Data = n.u.Publish(); n.own.BackendData != nil {
			t.Errorf("publishes %s: flannel publishes nothing", n.own.BackendData)
		}
	}
	for i, n := range nodes {
		peers := []lease.Record{nodes[1-i].own}
		set := lease.Set{Config: n.u.cfg.Network.NetworkConfig, Own: n.own, Peers: peers}
		if err := n.u.Apply(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		st := n.u.Status()
		if st.Type != "ipip" || st.MTU != 1480 || !st.InPlace || st.Peers != 1 || st.Path != "socket" ||
			!slices.Equal(n.u.Recv(), port.RecvProbe.Names()) {
			t.Errorf("%+v", st)
		}
	}
	// A device that joins datagrams inside other packets is an error until it is told not to.
	n := nodes[0]
	eth0 := n.u.Status().Underlay.Index
	if err := n.k.SetFeature(eth0, "rx-gro", true); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		on, feature := i%2 == 0, []string{"rx-udp-gro-forwarding", "rx-gro-list"}[i/2]
		if err := n.k.SetFeature(eth0, feature, on); err != nil {
			t.Fatal(err)
		}
		await.OK(t, "the device's feature", func() error {
			if st := n.u.Status(); st.InPlace == on ||
				on && !strings.Contains(st.LastError, "ethtool -K eth0 "+feature+" off") {
				return fmt.Errorf("feature on: %v, in place: %v, %q", on, st.InPlace, st.LastError)
			}
			return nil
		})
	}
	// The underlay gets another address: the socket follows.
	n.run(t, "addr del 192.0.2.1/24 dev eth0")
	n.run(t, "addr add 192.0.2.77/24 dev eth0")
	await.OK(t, "the other address", func() error {
		if st := n.u.Status(); st.Underlay.Addr4 != addr("192.0.2.77") || !st.InPlace {
			return fmt.Errorf("%v, %s", st.Underlay, st.LastError)
		}
		return nil
	})
}

package routing

import (
	"net"
	"testing"

	"weft/lease"
	"weft/test/netns"
)

// TestTrafficIsTheDevices sends packets to a peer that the kernel tunnels to, and to one that it routes to:
// each shows on the device that it leaves by.
func TestTrafficIsTheDevices(t *testing.T) {
	const direct = `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}`
	for name, tt := range map[string]struct {
		config string
		peer   lease.Record
		// by device, whether it is the overlay's own; the packets leave by "eth0" or the device that is
		want map[string]bool
	}{
		"vxlan": {`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`, vxlanPeer(2),
			map[string]bool{"flannel.1": true}},
		"vxlan, direct": {direct, vxlanPeer(2), map[string]bool{"flannel.1": true, "eth0": false}},
		"host-gw": {`{"Network":"10.5.0.0/16","Backend":{"Type":"host-gw"}}`, hostGWPeer(2),
			map[string]bool{"eth0": false}},
	} {
		t.Run(name, func(t *testing.T) {
			k := inNamespace(t)
			netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
			ip(t, "neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent")
			b := openKernelBackend(t, k, tt.config, nil)
			b.apply(kernelSet(b, tt.peer))
			sum := func() (own, host uint64) {
				for _, d := range b.Status().Traffic() {
					if want, there := tt.want[d.Name]; !there || want != d.Overlay {
						t.Errorf("unexpected: %+v", d)
					}
					if d.Overlay {
						own += d.TxPackets
					} else {
						host += d.TxPackets
					}
				}
				return own, host
			}
			if n := len(b.Status().Traffic()); n != len(tt.want) {
				t.Fatalf("%d devices: %+v", n, b.Status().Traffic())
			}
			own, host := sum()
			c, err := net.Dial("udp4", "10.5.2.7:9")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			const many = 5
			for range many {
				if _, err := c.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			ownNow, hostNow := sum()
			if _, routed := tt.want["eth0"]; routed && hostNow-host < many || !routed && ownNow-own < many {
				t.Errorf("of %d packets the overlay's devices counted %d, and the host's %d", many, ownNow-own,
					hostNow-host)
			}
		})
	}
}

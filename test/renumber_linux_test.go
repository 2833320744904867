package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// TestANodeIsRenumbered changes what a node is on the underlay while it runs and its pods talk: its links get
// a smaller MTU, and a larger one again; its address becomes another one, and the old one is somebody else's.
// Peers are told by its record, the device follows, and a connection between pods outlives all of that, also
// with packets that were as large as they could be.
func TestANodeIsRenumbered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config   string
		overhead int // bytes
	}{
		{`{"Type":"udp"}`, 28},
		{`{"Type":"vxlan"}`, 50},
	} {
		t.Run(c.config, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{NetworkConfig: json.RawMessage(`{"Network":"10.42.0.0/16","Backend":` +
				c.config + `}`)})
			n, other := l.Node(1), l.Node(2)
			a, b := n.Pods[0], other.Pods[0]
			reach(t, await.Patience, a, b, 4)
			before := current(t, n)
			talk := func(from, to *lab.Pod) *talking { // with as much as several packets of any MTU have room for
				k, _ := talkTo(t, from, to.Host, netip.AddrPortFrom(to.V4, 7779), 8<<10, 5*time.Millisecond)
				return k
			}
			there, back := talk(a, b), talk(b, a)
			goesOn := func() {
				t.Helper()
				there.goesOn(t, 10)
				back.goesOn(t, 10)
			}
			goesOn()
			for _, mtu := range []int{1400, 1500} {
				// Both ends of its wire: a link that takes less is not a router that says so.
				if mtu < 1500 {
					sh(t, n.Host, fmt.Sprintf("ip link set eth0 mtu %d", mtu))
				}
				sh(t, l.Wire, fmt.Sprintf("ip link set %s mtu %d", n.Name, mtu))
				if mtu == 1500 {
					sh(t, n.Host, fmt.Sprintf("ip link set eth0 mtu %d", mtu))
				}
				status(t, n, await.Patience, func(s statusJSON) error {
					if s.Underlay.MTU != mtu || s.Backend.MTU != mtu-c.overhead || !s.Backend.InPlace || !s.Ready {
						return fmt.Errorf("underlay %d, pods %d, in place %v %q, ready %v %q", s.Underlay.MTU, s.Backend.MTU,
							s.Backend.InPlace, s.Backend.Error, s.Ready, s.NotReady)
					}
					return nil
				})
				await.OK(t, "the record says so", func() error {
					if r := recordOf(t, l, n); !strings.Contains(r.value, fmt.Sprintf(`"MTU":%d`, mtu-c.overhead)) {
						return fmt.Errorf("%s", r.value)
					}
					return nil
				})
				await.OK(t, "the device follows", func() error {
					if text := sh(t, n.Host, "ip -o link show "+before.Backend.Device); !strings.Contains(text,
						fmt.Sprintf(" mtu %d ", mtu-c.overhead)) {
						return fmt.Errorf("%s", text)
					}
					return nil
				})
				goesOn()
			}
			now := netip.MustParseAddr("198.18.0.101")
			sh(t, n.Host, fmt.Sprintf("ip addr add %s/16 dev eth0; ip addr del %s/16 dev eth0; ip addr replace "+
				"%s/16 dev eth0; ip route replace default via 198.18.255.254",
				now, n.Underlay4, now))
			began := time.Now()
			newcomer(t, l, 1) // has the old address, and answers there
			status(t, n, 2*await.Patience, func(s statusJSON) error {
				if s.Underlay.Address != now || s.Underlay.PublicIP != now || !s.Ready || s.Lease == nil ||
					!s.Lease.Held || s.Lease.Subnet != before.Lease.Subnet || !s.Backend.InPlace {
					return fmt.Errorf("underlay %+v, ready %v %q, lease %+v, in place %v %q", s.Underlay, s.Ready,
						s.NotReady, s.Lease, s.Backend.InPlace, s.Backend.Error)
				}
				return nil
			})
			await.OK(t, "the other node is told", func() error {
				all, err := ask[peersJSON](t.Context(), other, "peers")
				if err != nil || len(all.Peers) != 1 || all.Peers[0].Address != now {
					return fmt.Errorf("%+v, %w", all.Peers, err)
				}
				return nil
			})
			t.Logf("the other node is told %s after the address has changed",
				time.Since(began).Round(time.Millisecond))
			// What was lost meanwhile TCP sends again after a pause that has doubled each time.
			there.goesOnWithin(t, 2*await.Patience, 10)
			back.goesOnWithin(t, 2*await.Patience, 10)
			t.Logf("and the connections go on after %s", time.Since(began).Round(time.Millisecond))
			reach(t, await.Patience, a, b, 4)
			reach(t, await.Patience, b, a, 4)
			if s := current(t, n); s.PID != before.PID || s.Alarm != "" {
				t.Errorf("pid %d, was %d; alarm %q", s.PID, before.PID, s.Alarm)
			}
		})
	}
}

package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// offloaded is how many packets a node has moved by an offload.
func offloaded(t *testing.T, n *lab.Node, offload string) int {
	t.Helper()
	metrics, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^weft_offload_packets_total\{offload="` + offload +
		`"\} (\S+)$`).FindStringSubmatch(metrics)
	if m == nil {
		t.Fatalf("/metrics lacks offload %s", offload)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

// burst sends many small datagrams in a row: what is packed where the peer takes it.
func burst(t *testing.T, from *lab.Pod, to netip.Addr) {
	t.Helper()
	// a port of its own: a child of another scenario may hold the last one's until it executes
	c := listenUDP(t, from, 0)
	defer c.Close()
	for i := range 300 {
		if _, err := c.WriteToUDPAddrPort(make([]byte, 20+i%5), netip.AddrPortFrom(to, secretPort)); err != nil {
			t.Fatal(err)
		}
	}
}

// on runs weftd on the path, by way of the store's configuration, which a node reads when it starts.
func on(t *testing.T, l *lab.Lab, n *lab.Node, path string) {
	t.Helper()
	put(t, l.Store, configKey,
		fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Probe":false,"Path":%q}}`, path), 0)
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	onPath(t, n, path)
	put(t, l.Store, configKey, unprobed, 0)
}

// unprobed is a network without probes, which may be packed too.
const unprobed = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Probe":false}}`

// Superpackets, partial checksums and packed datagrams are right at every receiver, whatever is left to the
// wire and whatever the wire can do: superpackets leave whole only where the device cuts tunnels, else in
// runs, and a connection outlives every change. That flannel gets none of them is
// TestNodeRunsFlannelForAWhile's.
func TestWireForms(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 4, NetworkConfig: json.RawMessage(unprobed)})
	a := l.Node(1).Pods[0]
	withoutNetRaw(t, l.Node(3))
	onPath(t, l.Node(3), "socket")
	on(t, l, l.Node(4), "portable")
	onPath(t, l.Node(1), "raw")
	onPath(t, l.Node(2), "raw")
	const tunnels = "tx-udp_tnl-segmentation %[1]s tx-udp_tnl-csum-segmentation %[1]s"
	const all = "tso on tx-udp-segmentation on gso on tx on "
	stream, _ := talkTo(t, a, l.Node(2).Pods[0].Host, netip.AddrPortFrom(l.Node(2).Pods[0].V4, 7780), 64<<10,
		time.Millisecond)
	for _, c := range []struct {
		name, features, outlet, leave string
	}{
		{"all offloads", "", "tunnel-gso", "whole"},
		{"no tunnel GSO", fmt.Sprintf(tunnels, "off"), "udp-gso", "runs"},
		{"no TSO, USO or GSO", "tso off tx-udp-segmentation off gso off", "udp-gso", "runs"},
		{"no offload", "tso off tx-udp-segmentation off gso off tx off", "udp-gso", "runs"},
		{"all on again", all + fmt.Sprintf(tunnels, "on"), "tunnel-gso", "whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.features != "" {
				for _, n := range l.Nodes() {
					sh(t, n.Host, "ethtool -K eth0 "+c.features)
				}
			}
			status(t, a.Node, await.Patience, func(s statusJSON) error {
				if o := s.Counters.Outlets; len(o) != 1 || o[0].Outlet != c.leave {
					return fmt.Errorf("superpackets leave %+v, want %s", o, c.leave)
				}
				return nil
			})
			left, packed := offloaded(t, a.Node, c.outlet), offloaded(t, a.Node, "pack")
			for _, n := range l.Nodes()[1:] {
				streams(t, a.Endpoint(4), n.Pods[0].Endpoint(4))
				datagrams(t, a, n.Pods[0], 4, 3000)
				datagrams(t, n.Pods[0], a, 4, 3000)
			}
			await.OK(t, "superpackets and packed datagrams for weft's nodes", func() error {
				for _, n := range l.Nodes()[1:] {
					burst(t, a, n.Pods[0].V4)
				}
				if by, p := offloaded(t, a.Node, c.outlet), offloaded(t, a.Node, "pack"); by == left || p == packed {
					return fmt.Errorf("%d superpackets by %s, %d packed: the test shows little", by-left, c.outlet, p-packed)
				}
				return nil
			})
			stream.goesOn(t, 10)
		})
	}
	for _, n := range l.Nodes() {
		if s := booked(t, n); s.Counters.Ingress.dropped("malformed") > 0 {
			t.Errorf("%s's books: %+v", n.Name, s.Counters)
		}
	}
}

// A node's device loses what it is to cut, without an error. A restarted weftd finds that by a peer's
// answers: bulk passes without runs, and status and doctor say so. When a feature of the device changes,
// weftd tries runs again.
func TestADeviceThatBreaksRunsIsFound(t *testing.T) {
	parallel(t)
	const config = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","DisableOffloads":["tunnel-gso"]}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	is := func(state string) {
		t.Helper()
		status(t, a.Node, await.Patience, func(s statusJSON) error {
			for _, o := range s.Counters.Offloads {
				if o.Name == "udp-gso" && o.State != state {
					return fmt.Errorf("udp-gso is %s, want it %s", o.State, state)
				}
			}
			return nil
		})
	}
	is("on")
	sh(t, a.Node.Host, `nft 'table netdev broken { chain out {
		type filter hook egress device "eth0" priority 0; meta length > 1514 drop; }; }'`)
	if err := a.Node.Restart(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	began := time.Now()
	is("broken")
	t.Logf("found %v after a restart", time.Since(began).Round(100*time.Millisecond))
	stream(t, a.Endpoint(4), b.Endpoint(4))
	found, err := examine(t, a.Node)
	says := func(f finding) bool { return f.ID == "daemon" && strings.Contains(f.Found, "udp-gso") }
	if err != nil || !slices.ContainsFunc(found, says) {
		t.Errorf("weft doctor says nothing of it: %+v, %v", found, err)
	}
	sh(t, a.Node.Host, "nft delete table netdev broken; ethtool -K eth0 tx-udp-segmentation off")
	is("on")
	stream(t, a.Endpoint(4), b.Endpoint(4))
}

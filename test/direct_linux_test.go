package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// Pods that are attached directly, with no bridge and no veth pair: all that they do together, and what their
// node does for them as a router. The scenarios share one lab of two nodes with two pods each, and run one
// after the other.
func TestDirectPods(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(dualStack), PodsPerNode: 2, Attach: lab.DirectAttach,
		WeftdArgs: []string{"--ip-masq"}})
	a, sibling, b := l.Node(1).Pods[0], l.Node(1).Pods[1], l.Node(2).Pods[0]
	for _, to := range []*lab.Pod{sibling, b} {
		t.Run("traffic to "+to.Name, func(t *testing.T) {
			for _, family := range []int{4, 6} {
				carries(t, a, to, family)
				fullSize(t, a, to, family, a.Node.Net.MTU)
			}
		})
	}
	everyPair(t, l.Pods())
	t.Run("what is no pod's goes out by the host", func(t *testing.T) { directOut(t, l, a) })
	t.Run("hostile pod", func(t *testing.T) { directTunnels(t, a, sibling, b) })
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Counters.Egress.balanced() || !s.Counters.Ingress.balanced() {
				return fmt.Errorf("%s: received is not delivered and dropped: %+v", n.Name, s.Counters)
			}
			return nil
		})
	}
	t.Run("MTU", func(t *testing.T) { directMTU(t, a, b) })
	// last: counters begin anew
	t.Run("killed with connections", func(t *testing.T) { directRestart(t, a, sibling, b) })
}

// directMTU gives a node's underlay another MTU, before its weftd is killed and afterwards: the interfaces of
// its pods follow without being attached anew, what fits goes out whole, and what does not is refused by the
// pod's own kernel.
func directMTU(t *testing.T, a, b *lab.Pod) {
	set := func(underlay, overlay int) {
		t.Helper()
		sh(t, a.Node.Host, fmt.Sprintf("ip link set eth0 mtu %d", underlay))
		await.OK(t, fmt.Sprintf("an MTU of %d in %s", overlay, a.Name), func() error {
			if out, err := a.Command(t.Context(), "cat", "/proc/sys/net/ipv6/conf/eth0/mtu"); err != nil ||
				strings.TrimSpace(string(out)) != fmt.Sprint(overlay) {
				return fmt.Errorf("it is %s: %v", out, err)
			}
			return nil
		})
		for _, family := range []int{4, 6} {
			await.OK(t, "what fits goes out whole", func() error {
				size := overlay - map[int]int{4: 28, 6: 48}[family]
				out, err := a.Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", fmt.Sprint(size),
					b.Addr(family).String())
				if err != nil {
					err = fmt.Errorf("%w: %s", err, out)
				}
				return err
			})
		}
	}
	whole := a.Node.Net.MTU
	set(1400, whole-100)
	if err := a.Node.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.Node.Daemon.Exited()
	if err := a.Node.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	set(1500, whole)
}

// directOut talks to a machine that is neither pod nor peer, which sees the node's address.
func directOut(t *testing.T, l *lab.Lab, a *lab.Pod) {
	const number, port = 79, 7777
	h := newcomer(t, l, number)
	ear := hear(t, h, port)
	for family, outside := range map[int]string{4: fmt.Sprintf("198.18.0.%d", number),
		6: fmt.Sprintf("fd18::%x", number)} {
		to := netip.AddrPortFrom(netip.MustParseAddr(outside), port)
		want := map[int]netip.Addr{4: a.Node.Underlay4, 6: a.Node.Underlay6}[family]
		if got := seenFrom(t, a.Host, to, ear); got != want {
			t.Errorf("a machine on the wire sees %s as %s, want %s", a.Name, got, want)
		}
		stream(t, a.Endpoint(family), probe.Endpoint{Name: h.Name, NS: h.NS, Addr: to.Addr()})
	}
}

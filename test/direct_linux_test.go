package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
		WeftdArgs: []string{"--ip-masq", "--metrics-per-pod"}})
	a, sibling, b := l.Node(1).Pods[0], l.Node(1).Pods[1], l.Node(2).Pods[0]
	for _, to := range []*lab.Pod{sibling, b} {
		t.Run("traffic to "+to.Name, func(t *testing.T) {
			for _, family := range []int{4, 6} {
				carries(t, a, to, family)
				fullSize(t, a, to, family, a.Node.Net.MTU)
			}
		})
	}
	t.Run("counters of each pod", func(t *testing.T) { directCounters(t, a, sibling) })
	t.Run("all pairs", func(t *testing.T) { directPairs(t, l) })
	t.Run("hops", func(t *testing.T) { directHops(t, a, sibling, b) })
	t.Run("what is no pod's goes out by the host", func(t *testing.T) { directOut(t, l, a) })
	t.Run("hostile pod", func(t *testing.T) { directHostile(t, l, a, sibling, b) })
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Counters.Egress.balanced() || !s.Counters.Ingress.balanced() {
				return fmt.Errorf("%s: received is not delivered and dropped: %+v", n.Name, s.Counters)
			}
			return nil
		})
	}
	t.Run("MTU", func(t *testing.T) { directMTU(t, a, b) })
	t.Run("killed with a connection", func(t *testing.T) { // last: counters begin anew
		for _, family := range []int{4, 6} {
			directRestart(t, a, b, family)
		}
	})
	t.Run("killed with a connection by a service", func(t *testing.T) { directServiceRestart(t, a, sibling, b) })
}

// directCounters: what a pod and its sibling have moved is shown of each of them, in metrics, by weft pods
// and in the node's status.
func directCounters(t *testing.T, pods ...*lab.Pod) {
	type traffic struct {
		Name, Interface                                        string
		Addresses                                              []string
		SentPackets, SentBytes, ReceivedPackets, ReceivedBytes uint64
	}
	n := pods[0].Node
	all, err := ask[struct{ Pods []traffic }](t.Context(), n, "pods")
	if err != nil {
		t.Fatal(err)
	}
	seen, err := ask[struct {
		Pods struct {
			traffic
			Busiest []traffic
		}
	}](t.Context(), n, "status")
	if err != nil {
		t.Fatal(err)
	}
	moved := func(p traffic) bool {
		return p.SentPackets > 0 && p.SentBytes > p.SentPackets && p.ReceivedPackets > 0 &&
			p.ReceivedBytes > p.ReceivedPackets
	}
	if !moved(seen.Pods.traffic) || len(seen.Pods.Busiest) != len(pods) || !moved(seen.Pods.Busiest[0]) {
		t.Errorf("the status has of pods %+v", seen.Pods)
	}
	text, err := n.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		i := slices.IndexFunc(all.Pods, func(p traffic) bool {
			return slices.Contains(p.Addresses, pod.V4.String())
		})
		if i < 0 || !moved(all.Pods[i]) {
			t.Fatalf("weft pods has %+v", all.Pods)
		}
		p := all.Pods[i]
		for what, least := range map[string]uint64{"transmit_packets": p.SentPackets, "transmit_bytes": p.SentBytes,
			"receive_packets": p.ReceivedPackets, "receive_bytes": p.ReceivedBytes} {
			_, after, ok := strings.Cut(text, fmt.Sprintf("\nweft_pod_interface_%s_total{interface=%q,pod=%q} ", what,
				p.Interface, p.Name))
			value, _, _ := strings.Cut(after, "\n")
			if got, err := strconv.ParseFloat(value, 64); !ok || err != nil || got < float64(least) {
				t.Errorf("%s of %s is %q in metrics, was %d before", what, p.Name, value, least)
			}
		}
	}
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

// directPairs pings between all pods in both families, without a loss.
func directPairs(t *testing.T, l *lab.Lab) {
	r, err := l.Measure(await.Context(t, time.Minute), lab.MeasurePlan{Stream: -1, Echo: 200 * time.Millisecond,
		Wait: await.Patience})
	if faults := r.Faults(); err != nil || len(faults) > 0 {
		t.Errorf("%d pairs, %v, %q", len(r.Pairs), err, faults)
	}
	for _, p := range r.Pairs {
		if p.Received != p.Sent {
			t.Errorf("IPv%d: %s to %s: %d of %d pings answered %s", p.Family, p.From, p.To, p.Received,
				p.Sent, p.Error)
		}
	}
}

// directHops sees that the way from one pod to another has one router, which says so when the time to live
// ends there.
func directHops(t *testing.T, a, sibling, b *lab.Pod) {
	for _, family := range []int{4, 6} {
		// that of the node's TUN
		router := map[int]netip.Prefix{4: a.Node.Net.V4, 6: a.Node.Net.V6}[family].Masked().Addr()
		for _, to := range []*lab.Pod{sibling, b} {
			for ttl, want := range map[int]netip.Addr{1: router, 2: to.Addr(family)} {
				out, err := a.Command(t.Context(), "ping", "-n", "-c", "1", "-W", "10", "-t", fmt.Sprint(ttl),
					to.Addr(family).String())
				var exceeded *exec.ExitError // the status of ping that has no answer but an error
				if err != nil && !errors.As(err, &exceeded) || !hopIs(string(out), ttl == 1, want) {
					t.Errorf("with %d hops to %s, want %v to answer: %v\n%s", ttl, to.Name, want, err, out)
				}
			}
		}
	}
}

// hopIs reads from ping's output who answered, and whether it was that the time to live had ended.
func hopIs(out string, exceeded bool, who netip.Addr) bool {
	if exceeded {
		return strings.Contains(out, "From "+who.String()+" icmp_seq=1 Time")
	}
	return strings.Contains(out, "bytes from "+who.String()+":")
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

package kube

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// Patience is how long a test waits for something that should take a second or two, since the machine may
// be busy with something else.
const Patience = time.Minute

// Until calls ok again and again until it returns nil, less and less often, and returns how long that took.
// When Patience is over it fails the test with the last error.
func Until(t *testing.T, what string, ok func(context.Context) error) time.Duration {
	t.Helper()
	return UntilWithin(t, Patience, what, ok)
}

// UntilWithin is Until with another limit.
func UntilWithin(t *testing.T, limit time.Duration, what string,
	ok func(context.Context) error) time.Duration {
	t.Helper()
	return await.Within(t, limit, what, func() error { return ok(t.Context()) })
}

// StatusIs waits until n's status is what ok wants, and returns it.
func (n *Node) StatusIs(t *testing.T, what string, ok func(Status) error) (s Status) {
	t.Helper()
	Until(t, n.Object+": "+what, func(ctx context.Context) (err error) {
		if s, err = n.Status(ctx); err != nil {
			return err
		}
		return ok(s)
	})
	return s
}

// KnowsOnly waits until n's peers have exactly those subnets whose family n has itself, and returns
// how long that took.
func (n *Node) KnowsOnly(t *testing.T, subnets ...netip.Prefix) time.Duration {
	t.Helper()
	want := sorted(subnets)
	families := map[bool]bool{}
	for _, own := range n.Subnets(t) {
		families[own.Addr().Is4()] = true
	}
	return Until(t, fmt.Sprintf("%s knows %v", n.Object, want), func(ctx context.Context) error {
		peers, err := n.Peers(ctx)
		if err != nil {
			return err
		}
		var got []netip.Prefix
		for _, p := range peers {
			for _, s := range p.Subnets {
				if families[s.Addr().Is4()] {
					got = append(got, s)
				}
			}
		}
		if got = sorted(got); !slices.Equal(got, want) {
			return fmt.Errorf("it knows %v", got)
		}
		return nil
	})
}

func sorted(ps []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(ps), netip.Prefix.Compare)
}

// Peer waits until n has a peer with the subnet for which ok returns nil.
func (n *Node) Peer(t *testing.T, subnet netip.Prefix, ok func(Peer) error) {
	t.Helper()
	Until(t, fmt.Sprintf("%s's peer %s", n.Object, subnet), func(ctx context.Context) error {
		peers, err := n.Peers(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(peers, func(p Peer) bool { return slices.Contains(p.Subnets, subnet) })
		if i < 0 {
			return fmt.Errorf("not among %+v", peers)
		}
		return ok(peers[i])
	})
}

// Subnets returns those of n's podCIDRs that weftd uses, and so has written for the CNI plugin.
func (n *Node) Subnets(t *testing.T) (subnets []netip.Prefix) {
	t.Helper()
	s := n.StatusIs(t, "has a subnet", func(s Status) error {
		if s.Lease == nil {
			return fmt.Errorf("not ready: %v", s.NotReady)
		}
		return nil
	})
	for _, p := range []netip.Prefix{s.Lease.Subnet, s.Lease.IPv6Subnet} {
		if p.IsValid() {
			subnets = append(subnets, p)
		}
	}
	return subnets
}

// NotReadyFor waits until /readyz says that weftd is not ready, for a reason that contains each of words.
func (n *Node) NotReadyFor(t *testing.T, words ...string) string {
	t.Helper()
	var said string
	Until(t, fmt.Sprintf("%s is not ready for %q", n.Object, words), func(ctx context.Context) error {
		err := n.Ready(ctx)
		if err == nil {
			return fmt.Errorf("it is ready")
		}
		said = err.Error()
		for _, w := range words {
			if !strings.Contains(said, w) {
				return fmt.Errorf("readyz: %w", err)
			}
		}
		return nil
	})
	return said
}

// AllReach lets every pod ping every other in each of the families, first until there is an answer,
// then a few times more. None of those may be lost.
func AllReach(t *testing.T, pods []*Pod, families ...int) {
	t.Helper()
	for _, family := range families {
		var ends []probe.Endpoint
		for _, p := range pods {
			ends = append(ends, p.Endpoint(family))
		}
		for _, a := range ends {
			for _, b := range ends {
				if a != b {
					Reach(t, a, b)
				}
			}
		}
		got, err := probe.Echo(t.Context(), ends, probe.EchoPlan{Count: 10, Interval: 20 * time.Millisecond,
			Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			if r.Received != r.Sent {
				t.Errorf("IPv%d: %s to %s: %d of %d pings answered %v", family, r.From, r.To, r.Received, r.Sent, r.Err)
			}
		}
	}
}

// Reach pings until there is an answer.
func Reach(t *testing.T, from, to probe.Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if err := lab.Reach(ctx, from, to.Addr); err != nil {
		t.Fatal(err)
	}
}

// Unreached fails if there is an answer within a second.
func Unreached(t *testing.T, from, to probe.Endpoint) {
	t.Helper()
	got, err := probe.Ping(t.Context(), from, to.Addr,
		probe.EchoPlan{Count: 3, Interval: 100 * time.Millisecond})
	if err == nil && got.Received > 0 {
		t.Errorf("%s still reaches %s", from.Name, to.Name)
	}
}

// Transfer sends 4 MiB by TCP and compares what arrives.
func Transfer(t *testing.T, from, to probe.Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if r, err := probe.Stream(ctx, probe.StreamPlan{From: from, To: to, Bytes: 4 << 20, Verify: true}); err != nil {
		t.Errorf("TCP from %s to %s: %d bytes, %v", from.Name, to.Name, r.Received, err)
	}
}

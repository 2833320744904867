package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/test/lab/probe"
)

// MeasurePlan says how long and how much Measure measures.
type MeasurePlan struct {
	// Stream is how long the TCP stream of each family lasts; 3 s by default, negative for none.
	Stream time.Duration
	// Echo is about how long echo requests are sent; 2 s by default. Each pair gets 5 to 100 of them:
	// as many as can be sent in that time if all pairs together send maxEchoRate a second.
	Echo time.Duration
	// Wait is how long after the last echo request an answer still counts; 1 s by default. What is answered is
	// not waited for.
	Wait time.Duration
}

// maxEchoRate is how many echo requests a second are sent altogether, so that those of a large lab are no
// load of their own.
const maxEchoRate = 2000

// Endpoint is the pod's address of family 4 or 6 for package probe.
func (p *Pod) Endpoint(family int) probe.Endpoint {
	return probe.Endpoint{Name: p.Name, NS: p.NS, Addr: p.Addr(family)}
}

// Endpoint is the node's underlay address of family 4 or 6 for package probe.
func (n *Node) Endpoint(family int) probe.Endpoint {
	addr := n.Underlay4
	if family == 6 {
		addr = n.Underlay6
	}
	return probe.Endpoint{Name: n.Name, NS: n.NS, Addr: addr}
}

// Measure lets every pod ping every other in each family, then sends a TCP stream from
// node 1's first pod to node 2's. With an error it still returns what was measured.
func (l *Lab) Measure(ctx context.Context, plan MeasurePlan) (Report, error) {
	setDefault(&plan.Stream, 3*time.Second)
	setDefault(&plan.Echo, 2*time.Second)
	r := Report{Lab: l.Spec.Name, Driver: l.Spec.Driver, Wire: l.Spec.Wire,
		Attach: l.Spec.Attach, Rootless: l.Spec.Rootless, Config: l.Spec.NetworkConfig,
		Nodes: len(l.Nodes()), Pods: len(l.Pods())}
	for _, family := range []int{4, 6} {
		if err := l.measureFamily(ctx, family, plan, &r); err != nil {
			return r, fmt.Errorf("measure IPv%d: %w", family, err)
		}
	}
	return r, nil
}

func (l *Lab) measureFamily(ctx context.Context, family int, plan MeasurePlan, r *Report) error {
	pods := map[string]*Pod{}
	var ends []probe.Endpoint
	for _, p := range l.Pods() {
		if p.Addr(family).IsValid() {
			ends = append(ends, p.Endpoint(family))
			pods[p.Name] = p
		}
	}
	if len(ends) < 2 {
		return nil
	}
	echo := planEcho(len(ends)*(len(ends)-1), plan.Echo)
	echo.Wait = plan.Wait
	l.progress("IPv%d: %d pings between each of %d pods", family, echo.Count, len(ends))
	if err := warm(ctx, ends); err != nil {
		return err
	}
	results, err := probe.Echo(ctx, ends, echo)
	for _, e := range results {
		r.Pairs = append(r.Pairs, newPair(family, e, pods[e.From], pods[e.To]))
	}
	if err != nil || plan.Stream < 0 {
		return err
	}
	return l.measureStream(ctx, family, plan.Stream, r)
}

// warm pings until every pair has had an answer, but only a few times. The first packet between
// two pods waits for neighbour entries, and that wait is not to be measured.
func warm(ctx context.Context, ends []probe.Endpoint) error {
	for range 3 {
		results, err := probe.Echo(ctx, ends, probe.EchoPlan{Count: 1, Interval: 20 * time.Millisecond,
			Wait: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(results, func(r probe.EchoResult) bool { return r.Received == 0 }) {
			return nil
		}
	}
	return nil
}

func planEcho(pairs int, within time.Duration) probe.EchoPlan {
	count := int(within.Seconds() * maxEchoRate / float64(pairs))
	count = min(max(count, 5), 100)
	interval := max(within/time.Duration(count), time.Duration(pairs)*time.Second/maxEchoRate)
	return probe.EchoPlan{Count: count, Interval: interval}
}

func (l *Lab) measureStream(ctx context.Context, family int, last time.Duration, r *Report) error {
	nodes := l.Nodes()
	if len(nodes) < 2 {
		return nil
	}
	from, to := nodes[0].Pods[0], nodes[1].Pods[0]
	l.progress("IPv%d: TCP from %s to %s for %s", family, from.Name, to.Name, last)
	s := Stream{Family: family, From: from.Name, To: to.Name, FromNode: from.Node.Name, ToNode: to.Node.Name}
	got, err := probe.Stream(ctx, probe.StreamPlan{From: from.Endpoint(family), To: to.Endpoint(family),
		Duration: last})
	s.Bytes, s.Seconds, s.BitsPerSecond, s.Retransmits = got.Received, got.Elapsed.Seconds(),
		got.BitsPerSecond(), got.Retransmits
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.Error = err.Error() // a result of the measurement, like a ping that is lost
	}
	r.Streams = append(r.Streams, s)
	return nil
}

func newPair(family int, e probe.EchoResult, from, to *Pod) Pair {
	p := Pair{
		Family: family, From: e.From, To: e.To, FromNode: from.Node.Name, ToNode: to.Node.Name,
		Sent: e.Sent, Received: e.Received, RTT: e.RTT,
		P50: probe.Quantile(e.RTT, 0.5), P99: probe.Quantile(e.RTT, 0.99),
	}
	if e.Err != nil {
		p.Error = e.Err.Error()
	}
	return p
}

// ErrUnreachable is wrapped by Reach's error if there was no answer in time.
var ErrUnreachable = errors.New("no answer")

// Reach pings an address from a host of the lab until there is one answer or ctx ends.
func Reach(ctx context.Context, from probe.Endpoint, to netip.Addr) error {
	once := probe.EchoPlan{Count: 1, Interval: time.Millisecond, Wait: 100 * time.Millisecond}
	for ; ; once.Wait = min(2*once.Wait, 2*time.Second) { // on a busy machine an answer is late, to each
		got, err := probe.Ping(ctx, from, to, once)
		switch {
		case got.Received > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s to %s: %w: %w", from.Name, to, ErrUnreachable, context.Cause(ctx))
		case err != nil:
			return err
		}
	}
}

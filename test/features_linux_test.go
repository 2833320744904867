package test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// river is a TCP connection that is written to without end, until dry.
type river struct {
	sent, got atomic.Int64
	stop      atomic.Bool
	ended     chan error // two: of the writer, and of the reader
}

// flow begins a connection from one pod to another. It breaks if nothing can be written for long.
func flow(t *testing.T, from, to *lab.Pod, family int) *river {
	t.Helper()
	var l net.Listener
	err := to.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to.Addr(family), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := from.NS.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	r := &river{ended: make(chan error, 2)}
	t.Cleanup(func() {
		r.stop.Store(true)
		_, _ = out.Close(), in.Close()
	})
	go func() {
		defer out.Close()
		b := make([]byte, 1<<20)
		for !r.stop.Load() {
			_ = out.SetDeadline(time.Now().Add(20 * time.Second))
			n, err := out.Write(b)
			r.sent.Add(int64(n))
			if err != nil {
				r.ended <- err
				return
			}
		}
		r.ended <- nil
	}()
	go func() {
		defer in.Close()
		b := make([]byte, 1<<20)
		for {
			n, err := in.Read(b)
			r.got.Add(int64(n))
			if err != nil {
				r.ended <- err
				return
			}
		}
	}()
	return r
}

// dry ends the connection. What was written has arrived.
func (r *river) dry(t *testing.T) {
	t.Helper()
	r.stop.Store(true)
	for range cap(r.ended) {
		if err := <-r.ended; err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("the connection broke: %v", err)
		}
	}
	if r.got.Load() != r.sent.Load() || r.got.Load() == 0 {
		t.Errorf("%d of %d bytes arrived", r.got.Load(), r.sent.Load())
	}
}

// offload is what the node did with one.
func (c countersJSON) offload(name string) (calls, packets uint64) {
	for _, o := range c.Offloads {
		if o.Name == name {
			return o.Calls, o.Packets
		}
	}
	return 0, 0
}

// Features of the underlay's device that change while a connection carries cost it nothing, and what leaves
// follows: whole superpackets only where the device cuts tunnels, else runs. What the device sends is counted
// too: uncut, a run is one packet of its counter, and some forty where the kernel cuts it.
func TestFeaturesChangeUnderAStream(t *testing.T) {
	l := shared(t, ipv4Only)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	onPath(t, a.Node, "raw")
	onPath(t, b.Node, "raw")
	r := flow(t, a, b, 4)
	set := func(on bool, names ...string) {
		t.Helper()
		want := map[string]bool{}
		for _, n := range names {
			want[n] = on
		}
		if err := a.Node.NS.SetFeatures("eth0", want); err != nil {
			t.Fatal(err)
		}
	}
	sent := func() uint64 {
		t.Helper()
		link, err := a.Node.NS.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().Statistics.TxPackets
	}
	tunnels := []string{"tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"}
	const udp = "tx-udp-segmentation"
	for _, step := range []struct {
		name   string
		change func()
		outlet string
		uncut  bool
	}{
		{"as it is", func() {}, "whole", true},
		{"tunnels off", func() { set(false, tunnels...) }, "runs", true},
		{"UDP off as well", func() { set(false, udp) }, "runs", false},
		{"UDP on again", func() { set(true, udp) }, "runs", true},
		{"tunnels on again", func() { set(true, tunnels...) }, "whole", true},
	} {
		step.change()
		changed := time.Now()
		status(t, a.Node, await.Patience, func(s statusJSON) error {
			if o := s.Counters.Outlets; len(o) != 1 || o[0].Outlet != step.outlet {
				return fmt.Errorf("%s: %+v", step.name, o)
			}
			return nil
		})
		t.Logf("%s: superpackets leave %s after %v", step.name, step.outlet,
			time.Since(changed).Round(time.Millisecond))
		before, txBefore := current(t, a.Node).Counters, sent()
		const enough = 1000
		var after countersJSON
		status(t, a.Node, time.Minute, func(s statusJSON) error {
			if after = s.Counters; after.Egress.Delivered < before.Egress.Delivered+enough*40 {
				return fmt.Errorf("%s: %d packets so far", step.name, after.Egress.Delivered-before.Egress.Delivered)
			}
			return nil
		})
		packets := after.Egress.Delivered - before.Egress.Delivered
		wholeBefore, _ := before.offload("tunnel-gso")
		whole, _ := after.offload("tunnel-gso")
		runsBefore, _ := before.offload("udp-gso")
		runs, _ := after.offload("udp-gso")
		whole, runs = whole-wholeBefore, runs-runsBefore
		tx := sent() - txBefore
		t.Logf("%s: %d packets, %d superpackets whole, %d runs, %d packets of the device", step.name, packets,
			whole, runs, tx)
		if step.uncut && tx > packets/4 {
			t.Errorf("%s: the device sent %d packets for %d", step.name, tx, packets)
		}
		switch {
		case step.outlet == "whole" && (whole == 0 || runs > whole/2):
			t.Errorf("%s: %d whole, and %d runs", step.name, whole, runs)
		case step.outlet == "runs" && (whole > 0 || runs == 0):
			t.Errorf("%s: %d whole, and %d runs", step.name, whole, runs)
		}
	}
	r.dry(t)
}

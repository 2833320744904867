package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/bench/load"
	"weft/test/await"
	"weft/test/lab"
)

const (
	manyPeers = 10_000
	// mostResident is what a daemon may have resident most of the time once it has settled, in KiB, and mostAtOnce what it may have at any
	// time. Go collects in turns, so in between there is more, by as much as is made while a turn waits for a processor.
	mostResident = 64 << 10
	mostAtOnce   = mostResident + mostResident/4
)

// peerNumber is the subnet and outer address of one of many nodes that exist in the store only.
// What is sent to them ends at the wire, their gateway.
func peerNumber(i int) (subnet netip.Prefix, outer netip.Addr) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100 + byte(i>>8), byte(i), 0}), 24),
		netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)})
}

// putPeers writes the records of peers from first on, as their daemons would, some hundred in a
// transaction (etcd takes 128 operations in one).
func putPeers(t *testing.T, s *lab.Store, first, n int, lease string, mtu int) error {
	t.Helper()
	type op struct {
		Put map[string]any `json:"requestPut"`
	}
	for at := first; at < first+n; {
		var ops []op
		for ; at < first+n && len(ops) < 100; at++ {
			subnet, outer := peerNumber(at)
			key := prefix + "/subnets/" + strings.ReplaceAll(subnet.String(), "/", "-")
			value := fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":"udp","Weft":{"Node":"far-%d","Recv":["gso","pcsum","pack"],"MTU":%d}}`, outer, at, mtu)
			ops = append(ops, op{map[string]any{"key": []byte(key), "value": []byte(value), "lease": lease}})
		}
		if err := etcd(t, s, "/v3/kv/txn", map[string]any{"success": ops}, nil); err != nil {
			return err
		}
	}
	return nil
}

// memory reads two sizes of a process, in KiB (proc_pid_status(5)): the most that was ever
// resident, and what is.
func memory(pid int) (most, now int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmHWM:":
			most, err = strconv.Atoi(f[1])
		case "VmRSS:":
			now, err = strconv.Atoi(f[1])
		}
		if err != nil {
			return 0, 0, err
		}
	}
	if most == 0 || now == 0 {
		return 0, 0, fmt.Errorf("no VmHWM and VmRSS in the status of process %d", pid)
	}
	return most, now, nil
}

// A daemon with 10,000 peers that it learnt of one after the other, or all at once, is small while it
// carries as much as it can to all of them, with records that change meanwhile; and stays so while
// hundreds ask for its metrics.
func TestMemoryOfManyPeers(t *testing.T) {
	first(t) // a daemon that has no processor gives no memory back
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(
		`{"Network":"10.0.0.0/8","SubnetLen":24,"SubnetMin":"10.42.0.0","SubnetMax":"10.42.255.0","Backend":{"Type":"udp","Path":"raw"}}`)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	var granted struct{ ID string }
	if err := etcd(t, l.Store, "/v3/lease/grant", map[string]any{"TTL": "3600"}, &granted); err != nil {
		t.Fatal(err)
	}
	mtu := l.Node(1).Net.MTU
	if err := l.Node(2).Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := putPeers(t, l.Store, 0, manyPeers, granted.ID, mtu); err != nil {
		t.Fatal(err)
	}
	put := time.Since(began)
	haveAll(t, l.Node(1))
	t.Logf("%d records put in %s, known %s after the first", manyPeers, put, time.Since(began))
	note(t, l.Node(1), "told of peers one by one")

	began = time.Now()
	if err := l.Node(2).Start(await.Context(t, 30*time.Second)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	haveAll(t, l.Node(2))
	t.Logf("a daemon that starts is ready and knows all after %s", time.Since(began))
	note(t, l.Node(2), "started with all peers")
	reach(t, await.Patience, a, b, 4)

	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := 0; ; i += 10 {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := putPeers(t, l.Store, i%manyPeers, 10, granted.ID, mtu-i/10%2); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	defer churn.Wait()
	defer stop()
	// A daemon gives memory back some seconds after a large change.
	for end := time.Now().Add(time.Minute); ; {
		sizes := sampled(t, l.Nodes())
		t.Logf("full load: %s", fullLoad(t, a, b, 5*time.Second))
		var err error
		for i, s := range sizes() {
			n, size, peak := l.Nodes()[i], s[len(s)/2], s[len(s)-1]
			note(t, n, fmt.Sprintf("under full load %d KiB, the median of %d, at most %d, and after it", size, len(s), peak))
			if size > mostResident || peak > mostAtOnce {
				err = errors.Join(err, fmt.Errorf("%s: %d KiB were resident under full load, at most %d; want at most %d, and %d at any time",
					n.Name, size, peak, mostResident, mostAtOnce))
			}
		}
		if err == nil {
			break
		}
		if t.Failed() || time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if s.Backend.Path != "raw" || s.Peers != manyPeers+1 || s.Rejected != 0 {
				return fmt.Errorf("path %q (%q), %d peers, %d records rejected", s.Backend.Path, s.Backend.Notes, s.Peers, s.Rejected)
			}
			return nil
		})
	}
	manyAsk(t, l, a, b)
}

// haveAll waits until a node knows all peers.
func haveAll(t *testing.T, n *lab.Node) {
	t.Helper()
	status(t, n, 30*time.Second, func(s statusJSON) error {
		if s.Peers != manyPeers+1 || !s.Ready {
			return fmt.Errorf("%d peers, ready: %v %q", s.Peers, s.Ready, s.NotReady)
		}
		return nil
	})
}

// sampled reads ten times a second how large the nodes' daemons are, until sizes is called. sizes returns the sizes of
// each daemon, in KiB, the largest last.
func sampled(t *testing.T, nodes []*lab.Node) (sizes func() [][]int) {
	t.Helper()
	seen := make([][]int, len(nodes))
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for i, n := range nodes {
				_, now, err := memory(n.Daemon.PID())
				if err != nil {
					t.Error(err)
					return
				}
				seen[i] = append(seen[i], now)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() [][]int {
		stop()
		all.Wait()
		for _, s := range seen {
			slices.Sort(s)
		}
		return seen
	}
}

// note logs how large a node's daemon has been and is.
func note(t *testing.T, n *lab.Node, when string) {
	t.Helper()
	most, now, err := memory(n.Daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, %s: at most %d KiB resident, now %d", n.Name, when, most, now)
}

// fullLoad sends as much as there is room for between two pods: in bulk both ways, then in small
// datagrams of many flows, and meanwhile to each of the many peers over and over.
func fullLoad(t *testing.T, a, b *lab.Pod, last time.Duration) string {
	t.Helper()
	ctx := await.Context(t, 2*last+30*time.Second)
	var (
		all       sync.WaitGroup
		faults    [3]error
		out, back load.TCPResult
		swept     int
	)
	all.Go(func() {
		out, faults[0] = load.TCP(ctx, load.TCPPlan{From: a.Endpoint(4), To: b.Endpoint(4), Streams: 4, Duration: last})
	})
	all.Go(func() {
		back, faults[1] = load.TCP(ctx, load.TCPPlan{From: b.Endpoint(4), To: a.Endpoint(4), Duration: last})
	})
	all.Go(func() { swept, faults[2] = sweep(ctx, a, last) })
	all.Wait()
	flow, err := load.NewFlow(a.Endpoint(4), b.Endpoint(4), load.Traffic{Mode: load.SendTo, Payloads: []int{18, 200, 600, 1400}, Flows: 1000}, load.Drain)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	small, err := flow.Trial(ctx, 0, last)
	if err := errors.Join(append(faults[:], err)...); err != nil {
		t.Error(err)
	}
	if out.Bytes == 0 || back.Bytes == 0 || small.Received == 0 || swept < manyPeers {
		t.Errorf("%d and %d bytes of TCP, %d datagrams, %d packets to all peers", out.Bytes, back.Bytes, small.Received, swept)
	}
	return fmt.Sprintf("%.2f and %.2f Gb/s of TCP beside %d packets to %d peers, then %.0f of %.0f datagrams of mixed sizes a second",
		out.GigabitsPerSecond(), back.GigabitsPerSecond(), swept, manyPeers, float64(small.Received)/last.Seconds(), float64(small.Sent)/last.Seconds())
}

// sweep sends a datagram to a pod of each peer in turn, some 5,000 a second, and returns how many
// that were.
func sweep(ctx context.Context, from *lab.Pod, last time.Duration) (n int, err error) {
	var c *net.UDPConn
	if err := from.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: from.V4.AsSlice()})
		return err
	}); err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, 64)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(last); ctx.Err() == nil && (time.Now().Before(end) || n < manyPeers); <-tick.C {
		for range 50 {
			subnet, _ := peerNumber(n % manyPeers)
			if _, err := c.WriteToUDPAddrPort(b, netip.AddrPortFrom(subnet.Addr().Next().Next(), 9)); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, context.Cause(ctx)
}

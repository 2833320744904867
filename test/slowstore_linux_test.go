package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// slowRelay stands between nodes and their store, and hands on what either says after a delay.
type slowRelay struct {
	to    string
	ns    *lab.Host
	delay atomic.Int64 // nanoseconds, each way
	l     net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

// relayPort is where the relay listens, on the store's host.
const relayPort = 12379

// relayTo has the store's clients from now on connected by way of a relay.
func relayTo(t *testing.T, s *lab.Store) *slowRelay {
	t.Helper()
	r := &slowRelay{to: fmt.Sprintf("%s:2379", s.Addr), ns: s.Host}
	if err := s.Do(func() (err error) {
		r.l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", s.Addr, relayPort))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	r.wg.Go(r.accept)
	if _, err := s.Command(t.Context(), "nft", fmt.Sprintf(`add table ip relay; add chain ip relay in { type nat hook prerouting priority -100; };
		add rule ip relay in iifname "eth0" tcp dport 2379 redirect to :%d`, relayPort)); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *slowRelay) close() {
	_ = r.l.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *slowRelay) accept() {
	for {
		from, err := r.l.Accept()
		if err != nil {
			return
		}
		var to net.Conn
		if err := r.ns.Do(func() (err error) {
			to, err = net.Dial("tcp", r.to)
			return err
		}); err != nil {
			_ = from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, to)
		r.mu.Unlock()
		r.wg.Go(func() { r.hand(from, to) })
		r.wg.Go(func() { r.hand(to, from) })
	}
}

// piece is what was read at once, and when it is to be written.
type piece struct {
	due  time.Time
	data []byte
}

// hand hands on what one end says. Order is kept, and as much is under way as is said within the delay.
func (r *slowRelay) hand(from, to net.Conn) {
	pieces := make(chan piece, 4096)
	r.wg.Go(func() {
		defer to.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close() // and so the reader ends
			}
		}
	})
	defer close(pieces)
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{time.Now().Add(time.Duration(r.delay.Load())), append([]byte(nil), b[:n]...)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = to.Close()
			}
			return
		}
	}
}

// TestSlowStore has every answer of the store come a second and a half late for a while: too late for a user who looks on, and not for weft. Whoever
// starts has its lease, and whoever has one keeps it; no peer goes and no packet is lost; what is written or deleted is learnt.
func TestSlowStore(t *testing.T) {
	counting(t)
	requireTool(t, "nft", "nftables")
	const each = 750 * time.Millisecond
	lasts := 10 * time.Second // more than it takes to find a store silent
	if os.Getenv("WEFT_LONG") != "" {
		lasts = time.Minute
	}
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	r := relayTo(t, l.Store)
	for _, n := range l.Nodes() { // so that they connect by way of the relay, the second one while it is slow
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
		r.delay.Store(int64(each))
	}
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	reach(t, await.Patience, b, a, 4)
	sending, stop := context.WithCancel(t.Context())
	defer stop()
	stream, err := probe.StartPaced(sending, probe.PacedPlan{From: a.Endpoint(4), To: b.Endpoint(4), Count: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	began, rounds := time.Now(), 0
	for ; time.Since(began) < lasts; rounds++ {
		subnet := fmt.Sprintf("10.42.%d.0", 240+rounds%8)
		key := prefix + "/subnets/" + subnet + "-24"
		put(t, l.Store, key, `{"PublicIP":"198.18.0.250","PublicIPv6":null}`, 24*time.Hour)
		for _, n := range l.Nodes() {
			took := knows(t, n, await.Patience, subnet+"/24", true)
			t.Logf("%s knows a record after %s", n.Name, took.Round(time.Millisecond))
		}
		del(t, l.Store, key)
		for _, n := range l.Nodes() {
			knows(t, n, await.Patience, subnet+"/24", false)
			s := current(t, n)
			if s.Lease == nil || !s.Lease.Held || s.Peers < 1 || s.Alarm != "" {
				t.Fatalf("%s: lease %+v, %d peers, alarm %q", n.Name, s.Lease, s.Peers, s.Alarm)
			}
		}
	}
	r.delay.Store(0)
	for _, n := range l.Nodes() {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Error(lab.Explain(err))
		}
	}
	stop()
	result := stream.Wait()
	t.Logf("%d rounds in %s; %s", rounds, time.Since(began).Round(time.Millisecond), result)
	if result.Lost > 0 || result.Sent == 0 {
		t.Errorf("%s, want none lost; outages %v", result, result.Outages)
	}
}

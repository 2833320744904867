package routing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
)

// handNode is a host whose backends follow one another.
type handNode struct {
	k      *kernel.Kernel
	config string
	own    lease.Record
	set    lease.Set
	mu     sync.Mutex
	held   map[string]tunnel.Kept // what a holder has
}

// life is one of the backends.
type life struct {
	*Node
	stop func()
}

// hold is BackendConfig.Keep as a holder does it.
func (n *handNode) hold(name string, k *tunnel.Kept) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was, ok := n.held[name]; ok {
		was.Close()
		delete(n.held, name)
	}
	if k == nil {
		return
	}
	if d, err := k.Dup(); err == nil {
		n.held[name] = d
	}
}

// begin makes a backend of the node, and runs it.
func (n *handNode) begin(t *testing.T, inherited map[string]tunnel.Kept) *life {
	t.Helper()
	network, err := Parse([]byte(n.config))
	if err != nil {
		t.Fatal(err)
	}
	c := BackendConfig{Kernel: n.k, Network: network, Node: n.own.V4.String(), Workers: 1, Inherited: inherited, Keep: n.hold,
		UnderlayOptions: underlay.Options{IPv4: true, Interfaces: []string{"eth0"}}}
	if c.Underlay, err = underlay.Choose(n.k, c.UnderlayOptions); err != nil {
		t.Fatal(err)
	}
	own, err := NewNode(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{Node: own, stop: start(t, own)}
	await.OK(t, "it runs", func() error { // as in weftd, before it has a set
		own.mu.Lock()
		defer own.mu.Unlock()
		if own.over == nil {
			return errors.New("not yet")
		}
		return nil
	})
	n.own.BackendType = own.RecordType()
	n.own.BackendData, n.own.BackendV6Data = own.Publish()
	if n.set.Own.V4.IsValid() {
		if err := own.Apply(t.Context(), n.set); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// heldNow is a duplicate of what is held.
func (n *handNode) heldNow(t *testing.T) map[string]tunnel.Kept {
	t.Helper()
	l := map[string]tunnel.Kept{}
	for name, k := range n.held {
		d, err := k.Dup()
		if err != nil {
			t.Fatal(err)
		}
		l[name] = d
	}
	return l
}

// handNodes are two hosts on one wire. The test runs alone, since it counts what is lost at a pace, and descriptors. The backends of the second last as long as the test.
func handNodes(t *testing.T, config string) (a, b *handNode, first *life) {
	t.Helper()
	nodes := []*handNode{{k: aloneInNamespace(t)}, {k: newNamespace(t)}}
	sh := func(k *kernel.Kernel, args string) {
		t.Helper()
		if err := k.Do(func() error { _, err := netns.TryIP(args); return err }); err != nil {
			t.Fatal(err)
		}
	}
	a, b = nodes[0], nodes[1]
	sh(a.k, fmt.Sprintf("link add eth0 type veth peer name eth0 netns /proc/%d/fd/%d", os.Getpid(), b.k.NS))
	var lives []*life
	for i, n := range nodes {
		sh(n.k, "link set lo up")
		sh(n.k, "link set eth0 up")
		sh(n.k, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", i+1))
		n.config, n.held = config, map[string]tunnel.Kept{}
		n.own = vxlanPeer(i + 1)
		n.own.PublicIPv6, n.own.V6 = netip.Addr{}, netip.Prefix{}
		lives = append(lives, n.begin(t, nil))
	}
	for i, n := range nodes {
		n.set = lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, Network: net4}, Own: n.own, Peers: []lease.Record{nodes[1-i].own}}
		if err := lives[i].Apply(t.Context(), n.set); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			for _, k := range n.held {
				k.Close()
			}
		}
	})
	return a, b, lives[0]
}

// sequence is a flow of numbered packets from one node to another.
type sequence struct {
	sent, got                    atomic.Uint64
	missing, doubled, disordered uint64
	gap                          time.Duration // the longest between two arrivals
	send, receive                *net.UDPConn
	rate                         int           // packets a second
	window                       uint64        // how many may be on their way
	end                          chan struct{} // closed: no more is sent
	sender, receiver             sync.WaitGroup
}

// flow begins a flow, at a rate at most: no more than a window is on its way, so that no queue overflows.
func flow(t *testing.T, from, to *handNode, rate int, window uint64) *sequence {
	t.Helper()
	f := &sequence{rate: rate, window: window, end: make(chan struct{})}
	err := to.k.Do(func() (err error) {
		f.receive, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.own.V4.Addr(), 0)))
		return err
	})
	if err == nil {
		err = from.k.Do(func() (err error) {
			f.send, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.own.V4.Addr(), 0)), f.receive.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err == nil {
		var raw interface{ Control(func(uintptr)) error }
		if raw, err = f.receive.SyscallConn(); err == nil {
			err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20) })
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	f.receiver.Go(f.collect)
	f.sender.Go(f.generate)
	return f
}

func (f *sequence) generate() {
	began := time.Now()
	b := make([]byte, 64)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := uint64(0); ; {
		select {
		case <-f.end:
			return
		case <-tick.C:
		}
		due := uint64(time.Since(began).Seconds() * float64(f.rate))
		for ; begun < due && f.sent.Load()-f.got.Load() < f.window; begun++ {
			binary.BigEndian.PutUint64(b, f.sent.Load())
			if _, err := f.send.Write(b); err == nil {
				f.sent.Add(1)
			}
		}
		begun = max(begun, due) // what could not be sent is not made up for
	}
}

func (f *sequence) collect() {
	b := make([]byte, 64)
	var last time.Time
	for next := uint64(0); ; {
		n, err := f.receive.Read(b)
		if err != nil {
			return
		}
		now := time.Now()
		if !last.IsZero() {
			f.gap = max(f.gap, now.Sub(last))
		}
		last = now
		if n != len(b) {
			continue
		}
		switch i := binary.BigEndian.Uint64(b); {
		case i >= next:
			f.missing += i - next
			next = i + 1
		case f.missing > 0: // late, or for the second time
			f.missing--
			f.disordered++
		default:
			f.doubled++
		}
		f.got.Add(1)
	}
}

// finish ends the flow and says what became of it.
func (f *sequence) finish(t *testing.T, what string) {
	t.Helper()
	close(f.end)
	f.sender.Wait()
	for deadline := time.Now().Add(5 * time.Second); f.got.Load() < f.sent.Load() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	_ = f.receive.Close()
	_ = f.send.Close()
	f.receiver.Wait()
	sent, got := f.sent.Load(), f.got.Load()
	if sent != got || f.missing+f.doubled+f.disordered > 0 {
		t.Errorf("%s: of %d packets %d arrived: %d missing within, %d twice, %d late", what, sent, got, f.missing, f.doubled, f.disordered)
	}
	t.Logf("%s: %d packets of %d arrived, the longest gap was %v", what, got, sent, f.gap)
}

// moves waits until a flow has moved by some packets.
func (f *sequence) moves(t *testing.T) {
	t.Helper()
	want := f.got.Load() + 5
	await.Within(t, handWithin, "the flow moves", func() error {
		if got := f.got.Load(); got < want {
			return fmt.Errorf("%d packets, want %d", got, want)
		}
		return nil
	})
}

// waits waits until so many packets are on their way.
func (f *sequence) waits(t *testing.T, n uint64) {
	t.Helper()
	await.Within(t, handWithin, "packets wait", func() error {
		if on := f.sent.Load() - f.got.Load(); on < n {
			return fmt.Errorf("%d packets, want %d", on, n)
		}
		return nil
	})
}

const handWithin = 20 * time.Second

func handConfigs() map[string]string {
	configs := map[string]string{}
	for _, path := range []string{"raw", "socket", "portable"} {
		configs["ip/"+path] = fmt.Sprintf(`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","Path":%q}}`, path)
		configs["vxlan/"+path] = fmt.Sprintf(`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","VNI":7,"Userspace":"always","Path":%q}}`, path)
	}
	return configs
}

// TestPauseAndTakeUp has backends follow one another under flows in both directions, one of a thousand packets a second and
// one as fast as the machine lets them. Some resume instead. Nothing is lost, doubled or reordered, and no descriptor is
// left.
func TestPauseAndTakeUp(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for name, config := range handConfigs() {
		t.Run(name, func(t *testing.T) {
			a, b, now := handNodes(t, config)
			flows := map[string]*sequence{"out": flow(t, a, b, 1000, 500), "in": flow(t, b, a, 1000, 500), "out, fast": flow(t, a, b, 100_000, 200), "in, fast": flow(t, b, a, 100_000, 200)}
			descriptors := 0
			for turn := range 8 {
				for _, f := range flows {
					f.moves(t)
				}
				now.Pause()
				if turn%3 == 2 { // no program takes its place
					now.Resume()
				} else {
					now.Abandon()
					now.stop()
					now = a.begin(t, a.heldNow(t))
				}
				if turn == 2 {
					descriptors = openFiles(t)
				}
			}
			await.Within(t, handWithin, "descriptors are given back", func() error {
				if n := openFiles(t); n > descriptors {
					return fmt.Errorf("%d are open, %d were", n, descriptors)
				}
				return nil
			})
			for name, f := range flows {
				f.moves(t)
				f.finish(t, name)
			}
		})
	}
}

// TestCrashAndTakeUp ends backends in the middle of flows, while somebody else has duplicates of their descriptors, and begins others of these
// a little later.
func TestCrashAndTakeUp(t *testing.T) {
	netns.Root(t, "a buffer of any size (SO_SNDBUFFORCE, SO_RCVBUFFORCE) is for root of the machine")
	for name, config := range handConfigs() {
		t.Run(name, func(t *testing.T) {
			a, b, now := handNodes(t, config)
			flows := map[string]*sequence{"out": flow(t, a, b, 1000, 400), "in": flow(t, b, a, 1000, 400)}
			for range 4 {
				for _, f := range flows {
					f.moves(t)
				}
				now.Abandon()
				now.stop()
				if len(a.held) != 2 {
					t.Fatalf("held: %v", a.held)
				}
				for _, f := range flows {
					f.waits(t, 50)
				}
				now = a.begin(t, a.heldNow(t))
			}
			for name, f := range flows {
				f.moves(t)
				f.finish(t, name)
			}
			now.stop() // for good
			if len(a.held) != 0 {
				t.Errorf("%d ports are held of a backend that has ended", len(a.held))
			}
		})
	}
}

// TestAnotherPathIsNotTakenOver begins a backend that wants another path than the ports are for: they are made anew.
func TestAnotherPathIsNotTakenOver(t *testing.T) {
	configs := handConfigs()
	a, b, now := handNodes(t, configs["ip/raw"])
	a.config = configs["ip/portable"]
	now.Abandon()
	now.stop()
	next := a.begin(t, a.heldNow(t))
	if path := next.Status().Path; path != "portable" {
		t.Errorf("path %s", path)
	}
	for name, k := range a.held {
		if k.Kind != tunnel.KindTUN && k.Kind != tunnel.KindUDP {
			t.Errorf("%s is of kind %s", name, k.Kind)
		}
	}
	f := flow(t, a, b, 1000, 200)
	f.moves(t)
	f.finish(t, "over ports that were made anew")
}

// openFiles is how many descriptors the process has.
func openFiles(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

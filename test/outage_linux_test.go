package test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// outage is a store that does not answer, made in one way and unmade.
type outage struct {
	name    string
	lasts   time.Duration // at least
	unready bool          // wait until /readyz says so
	begin   func(*testing.T, *lab.Store) error
	end     func(*testing.T, *lab.Store) error
}

func outages() []outage {
	killed := 15 * time.Second
	if os.Getenv("WEFT_LONG") != "" {
		killed = time.Minute
	}
	blackHole := `add table inet hole; add chain inet hole in { type filter hook input priority 0; };
		add rule inet hole in iifname "eth0" tcp dport 2379 drop`
	nft := func(t *testing.T, s *lab.Store, rules string) error {
		_, err := s.Command(t.Context(), "nft", rules)
		return err
	}
	return []outage{
		{"paused until not ready", 0, true,
			func(_ *testing.T, s *lab.Store) error { return s.Daemon.Signal(unix.SIGSTOP) },
			func(_ *testing.T, s *lab.Store) error { return s.Daemon.Signal(unix.SIGCONT) }},
		{"killed", killed, false,
			func(_ *testing.T, s *lab.Store) error { return s.Daemon.Kill() },
			func(t *testing.T, s *lab.Store) error { return s.Start(t.Context()) }},
		{"black-holed", 0, false,
			func(t *testing.T, s *lab.Store) error { return nft(t, s, blackHole) },
			func(t *testing.T, s *lab.Store) error { return nft(t, s, "delete table inet hole") }},
	}
}

// Without its store a cluster goes on: no packet is lost, nobody spins, and everyone says what is
// wrong. What is written after the store's return is known with the next connection to it.
func TestStoreOutage(t *testing.T) {
	counting(t)
	requireTool(t, "nft", "nftables")
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			l := up(t, lab.Spec{Nodes: 3})
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
			reach(t, await.Patience, a, b, 4)
			sending, stop := context.WithCancel(t.Context())
			defer stop()
			stream, err := probe.StartPaced(sending, probe.PacedPlan{From: a.Endpoint(4), To: b.Endpoint(4), Count: 300_000})
			if err != nil {
				t.Fatal(err)
			}
			underWay(t, stream, 1000)
			heardWhileQuiet(t, l.Node(3))
			if err := o.begin(t, l.Store); err != nil {
				t.Fatal(err)
			}
			during(t, l, o)
			if err := o.end(t, l.Store); err != nil {
				t.Fatal(err)
			}
			learns(t, l)
			joins(t, l)
			stop()
			r := stream.Wait()
			t.Logf("%s", r)
			if r.Lost > 0 || r.Duplicates > 0 || r.Reordered > 0 {
				t.Errorf("%s, want none lost; outages %v", r, r.Outages)
			}
		})
	}
}

// during watches the outage: the status says it, and the third node, which carries no packets,
// sleeps for nearly all of the time.
func during(t *testing.T, l *lab.Lab, o outage) {
	idle, busy := l.Node(3), l.Node(1)
	start, idleFrom, busyFrom, woken := time.Now(), cpu(t, idle.Daemon.PID()), cpu(t, busy.Daemon.PID()), wakeups(t, idle.Daemon.PID())
	noticed := time.Duration(0)
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if s.Store.Connected || s.Store.Error == "" {
				return fmt.Errorf("store: %+v", s.Store)
			}
			return nil
		})
		noticed = time.Since(start)
	}
	if o.unready {
		took := await.Within(t, time.Minute, "node 3 is not ready", func() error {
			if err := idle.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "store: silent for ") {
				return fmt.Errorf("readyz: %v", err)
			}
			return nil
		})
		t.Logf("not ready %s after the outage was noticed: %v", took, idle.Ready(t.Context()))
	}
	await.Within(t, 2*o.lasts+time.Second, "the outage lasts", func() error {
		if err := idle.Ready(t.Context()); err != nil && !o.unready {
			t.Errorf("%s after the outage of a quiet store was noticed: %v", time.Since(start), err)
		}
		if time.Since(start) < o.lasts {
			return fmt.Errorf("%s", time.Since(start))
		}
		return nil
	})
	wall := time.Since(start)
	used, carrying := cpu(t, idle.Daemon.PID())-idleFrom, cpu(t, busy.Daemon.PID())-busyFrom
	woken = wakeups(t, idle.Daemon.PID()) - woken
	t.Logf("noticed after %s; in %s node 3 woke up %d times and used %s (%.2f %%), node 1 with 1,000 packets a second %s (%.2f %%)",
		noticed.Round(time.Millisecond), wall.Round(time.Millisecond), woken, used, share(used, wall), carrying, share(carrying, wall))
	if most := int(wakeupsASecond * wall.Seconds()); woken > most {
		t.Errorf("node 3 woke up %d times in the outage of %s, want at most %d", woken, wall, most)
	}
}

// wakeupsASecond is how often an idle node may wake up in an outage. One that spins, or that tries to connect over and
// over, wakes up thousands of times.
const wakeupsASecond = 500

// wakeups is how often the threads of a process have slept and gone on (voluntary_ctxt_switches, proc_pid_status(5)).
// That of a thread that has ended is not in it; Go keeps its threads. Go's monitor is left out (workThreads).
func wakeups(t *testing.T, pid int) (n int) {
	t.Helper()
	for _, name := range workThreads(t, pid) {
		b, err := os.ReadFile(name + "/status")
		if err != nil {
			continue // it has just ended
		}
		_, after, _ := strings.Cut(string(b), "\nvoluntary_ctxt_switches:")
		more, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n += more
	}
	return n
}

// onCPU is the processor time that the threads of a process have used, of those that wakeups counts, in the kernel's own resolution
// (the first number of schedstat, in nanoseconds).
func onCPU(t *testing.T, pid int) (d time.Duration) {
	t.Helper()
	for _, name := range workThreads(t, pid) {
		b, err := os.ReadFile(name + "/schedstat")
		if err != nil {
			continue // it has just ended
		}
		ran, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d += time.Duration(n)
	}
	return d
}

// workThreads are the directories in proc of a process' threads but Go's monitor, the first one that
// the runtime starts after the main one: while another thread waits for a processor it sleeps for 20 µs at a time, so on a
// busy machine it wakes up a thousand times a second, whatever the program does.
func workThreads(t *testing.T, pid int) (names []string) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(threads) < 3 {
		t.Fatalf("process %d has %d threads: %v", pid, len(threads), err)
	}
	number := func(e os.DirEntry) int {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	slices.SortFunc(threads, func(a, b os.DirEntry) int { return number(a) - number(b) })
	for _, thread := range slices.Delete(threads, 1, 2) {
		names = append(names, fmt.Sprintf("/proc/%d/task/%s", pid, thread.Name()))
	}
	return names
}

// connections is how often a host has begun a TCP connection.
func connections(t *testing.T, h *lab.Host) int {
	t.Helper()
	return counterOf(t, h, "Tcp", "ActiveOpens")
}

// heardWhileQuiet waits until the node has heard from its store twice, in which nothing changes:
// how long a store is silent counts from there.
func heardWhileQuiet(t *testing.T, n *lab.Node) {
	first := current(t, n).Store
	for last, more := first, 0; more < 2; more++ {
		last = status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Store.LastSeen.After(last.LastSeen) {
				return fmt.Errorf("last heard at %s, at revision %d", s.Store.LastSeen, s.Store.Revision)
			}
			return nil
		}).Store
	}
}

func share(part, whole time.Duration) float64 { return 100 * part.Seconds() / whole.Seconds() }

// mostConnections is how often a node may connect to the store, once that is back, until it knows what was written there. A
// daemon has two clients, and the one that is connecting while the store returns may have to do it again.
const mostConnections = 4

// learns writes a record as soon as the store is back.
func learns(t *testing.T, l *lab.Lab) {
	before := map[*lab.Node]int{}
	for _, n := range l.Nodes() {
		before[n] = connections(t, n.Host)
	}
	put(t, l.Store, prefix+"/subnets/10.42.250.0-24", `{"PublicIP":"198.18.0.250","PublicIPv6":null}`, 24*time.Hour)
	for _, n := range l.Nodes() {
		took := knows(t, n, await.Patience, "10.42.250.0/24", true)
		tried := connections(t, n.Host) - before[n]
		t.Logf("%s knows a record written after the store's return in %s, with %d connections", n.Name, took.Round(time.Millisecond), tried)
		if tried > mostConnections {
			t.Errorf("%s connected %d times until it knew a record written after the store's return, want at most %d", n.Name, tried, mostConnections)
		}
		if err := n.WaitReady(t.Context()); err != nil {
			t.Error(lab.Explain(err))
		}
	}
}

// joins adds a node, and lets the others know it and reach it.
func joins(t *testing.T, l *lab.Lab) {
	known := map[string]bool{}
	for _, kv := range list(t, l.Store, prefix+"/subnets/") {
		known[kv.key] = true
	}
	added := make(chan error, 1)
	go func() { // waited for below
		_, err := l.AddNode(t.Context())
		added <- err
	}()
	var key string
	await.OK(t, "a new record", func() error {
		for _, kv := range list(t, l.Store, prefix+"/subnets/") {
			if !known[kv.key] {
				key = strings.TrimPrefix(kv.key, prefix+"/subnets/")
				return nil
			}
		}
		return fmt.Errorf("only %v", known)
	})
	subnet := netip.MustParsePrefix(strings.ReplaceAll(key, "-", "/"))
	took := knows(t, l.Node(1), await.Patience, subnet.String(), true)
	if err := <-added; err != nil {
		t.Fatal(lab.Explain(err))
	}
	nodes := l.Nodes()
	last := nodes[len(nodes)-1].Pods[0]
	t.Logf("a new node known %s after its record was written; reached after a further %s", took.Round(time.Millisecond),
		reach(t, await.Patience, nodes[0].Pods[0], last, 4).Round(time.Millisecond))
}

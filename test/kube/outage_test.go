package kube

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/traffic"
)

// outageLasts is how long the API server is away: 30 s, or the duration in WEFT_LONG, such as 2m. If
// WEFT_LONG is something else, it is five minutes.
func outageLasts() time.Duration {
	text := os.Getenv("WEFT_LONG")
	if text == "" {
		return 30 * time.Second
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return 5 * time.Minute
}

// While the API server is dead, stopped or without its store, no packet is lost, and every node that gets no
// answer says so. A weftd that starts meanwhile serves from its cache. What is written after the server's
// return is known soon.
func TestAPIServerOutage(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	a, b, late := c.AddNode(t, "a", NodeOptions{}), c.AddNode(t, "b", NodeOptions{}),
		c.AddNode(t, "late", NodeOptions{})
	pods := []*Pod{a.AddPod(t), b.AddPod(t), late.AddPod(t)}
	AllReach(t, pods, 4)
	for i, o := range []struct {
		name       string
		lasts      time.Duration
		served     bool // the API server answers from what it remembers, so nobody need notice
		begin, end func() error
	}{
		{"killed", outageLasts(), false, c.APIServer.Kill, func() error { return c.APIServer.Up(t.Context()) }},
		{"stopped", 0, false, pause(c.APIServer), resume(t, c.APIServer)},
		{"without etcd", 5 * time.Second, true, pause(c.Etcd), resume(t, c.Etcd, c.APIServer)},
	} {
		t.Run(o.name, func(t *testing.T) {
			there, back := traffic.Start(t, pods[0].Endpoint(4), pods[1].Endpoint(4), 500),
				traffic.Start(t, pods[1].Endpoint(4), pods[0].Endpoint(4), 500)
			began := time.Now()
			if err := o.begin(); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				restartWithoutServer(t, late, pods[0], pods[2])
			}
			for _, n := range []*Node{a, b} {
				n.StatusIs(t, "says that the API server is away", func(s Status) error {
					if !o.served && (s.Store.Connected || s.Store.Error == "") {
						return fmt.Errorf("store %+v", s.Store)
					}
					return nil
				})
			}
			t.Logf("every node has noticed after %s", time.Since(began).Round(time.Millisecond))
			UntilWithin(t, 2*o.lasts+time.Second, "the outage lasts", func(context.Context) error {
				if d := time.Since(began); d < o.lasts {
					return fmt.Errorf("%s", d)
				}
				return nil
			})
			if err := o.end(); err != nil {
				t.Fatal(err)
			}
			back4, _ := paperNode(c, t, "new", byte(220+i))
			began = time.Now()
			known := append(b.Subnets(t), append(late.Subnets(t), back4)...)
			a.KnowsOnly(t, known...)
			t.Logf("a knows a node made after the server's return in %s", time.Since(began).Round(time.Millisecond))
			c.DeleteNode(t, "new")
			for _, n := range c.Nodes() {
				if err := n.WaitReady(t.Context()); err != nil {
					t.Error(err)
				}
			}
			there.Lossless()
			back.Lossless()
		})
	}
}

// restartWithoutServer restarts a weftd that cannot ask anybody.
func restartWithoutServer(t *testing.T, n *Node, other, own *Pod) {
	t.Helper()
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Daemon.Start(); err != nil {
		t.Fatal(err)
	}
	n.StatusIs(t, "forwards from its cache", func(s Status) error {
		if !s.Cache.Used || s.Peers != 2 {
			return fmt.Errorf("cache used: %v, %d peers, not ready: %v", s.Cache.Used, s.Peers, s.NotReady)
		}
		return nil
	})
	AllReach(t, []*Pod{other, own}, 4)
	if err := n.WaitReady(t.Context()); err != nil {
		t.Errorf("its pods have a network, and it is not ready: %v", err)
	}
}

func pause(p *Process) func() error { return func() error { return p.Signal(unix.SIGSTOP) } }

// resume returns a function that lets a stopped program go on and waits for it and for those that need it.
func resume(t *testing.T, stopped *Process, also ...*Process) func() error {
	return func() error {
		if err := stopped.Signal(unix.SIGCONT); err != nil {
			return err
		}
		for _, p := range append(also, stopped) {
			if err := p.WaitHealthy(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}
}

// If the API server's answers no longer reach a node, it finds that out although it sees no error. By the
// time they reach it again, the revision that it knows is compacted, so that its watch cannot go on (410
// Gone). It then lists anew, and knows what was added, changed and removed meanwhile.
func TestWatchExpired(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	a := c.AddNode(t, "a", NodeOptions{NetworkConfig: kernelVXLAN()})
	keep4, keep6 := paperNode(c, t, "keeps", 200)
	gone4, gone6 := paperNode(c, t, "goes", 201)
	a.KnowsOnly(t, keep4, keep6, gone4, gone6)
	hole := fmt.Sprintf("add table inet hole; add chain inet hole in { type filter hook input priority 0; }; "+
		"add rule inet hole in tcp sport %d drop", apiPort)
	if _, err := a.Command(t.Context(), "nft", hole); err != nil {
		t.Fatal(err)
	}
	c.DeleteNode(t, "goes")
	new4, new6 := paperNode(c, t, "comes", 202)
	to4, _ := paperAddress(203)
	c.Annotate(t, "keeps", map[string]any{AnnotationPrefix + "public-ip": to4.String()})
	if err := c.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), c.APIServer); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a.StatusIs(t, "finds out that the API server is silent", func(s Status) error {
		if s.Store.Connected {
			return fmt.Errorf("store %+v", s.Store)
		}
		return nil
	})
	t.Logf("found out after %s more", time.Since(began).Round(time.Millisecond))
	if _, err := a.Command(t.Context(), "nft", "delete table inet hole"); err != nil {
		t.Fatal(err)
	}
	took := a.KnowsOnly(t, keep4, keep6, new4, new6)
	kernelSays(t, a, []string{"dst " + to4.String()}, []string{gone4.String(), gone6.String()})
	t.Logf("caught up %s after the answers came again", took.Round(time.Millisecond))
	if err := a.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// driven is a data plane on link eth0 with whoever calls it: no more than what follows the kernel.
type driven struct {
	*Plane
	k    *kernel.Kernel
	kick chan kernel.Change

	mu           sync.Mutex // guards the Plane
	addr4, addr6 netip.Addr
}

// newDriven makes a data plane of format ip and path auto with the addresses of eth0, which has them.
func newDriven(t *testing.T, k *kernel.Kernel, addr4, addr6 string, peers ...tunnel.PeerSpec) *driven {
	t.Helper()
	d := &driven{k: k, kick: make(chan kernel.Change, 64)}
	if addr4 != "" {
		d.addr4 = addr(addr4)
	}
	if addr6 != "" {
		d.addr6 = addr(addr6)
	}
	var err error
	d.Plane, err = New(k, Options{
		Format: encap.FormatIP, Port: encap.PortIP, Path: tunnel.PathRaw, Auto: true,
		Logger: slog.New(slog.DiscardHandler),
		Nudge: func(ch kernel.Change) {
			select {
			case d.kick <- ch:
			default: // as many wait, and one does for all
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := d.Publish(tunnel.Spec{UnderlayMTU: 1500, Check: tunnel.CheckStrict, Peers: peers}); err !=
		nil || len(refused) > 0 {
		t.Fatalf("refused %v, error %v", refused, err)
	}
	d.look(t, kernel.ChangedAll)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// look does once what a change makes necessary.
func (d *driven) look(t *testing.T, ch kernel.Change) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.Listen(d.addr4, d.addr6, "eth0", nil); err != nil {
		t.Error(err)
	}
	if err := d.UpdateNextHops("eth0", ch); err != nil {
		t.Error(err)
	}
}

// follow does so at every notification, until the test ends.
func (d *driven) follow(t *testing.T) {
	t.Helper()
	m, err := d.k.Subscribe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Follow(d.o.Nudge); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		for ch := kernel.ChangedAll; ; {
			d.look(t, ch)
			d.mu.Lock()
			i := kernel.Interest{Own: map[int]bool{}, Names: map[string]bool{"eth0": true}}
			d.AddInterest(&i)
			d.mu.Unlock()
			m.Watch(i)
			select {
			case ch = <-d.kick:
			case <-ended:
				return
			}
		}
	})
	t.Cleanup(func() { m.Close(); close(ended); wg.Wait() })
}

// hops are the next hops that the ports have been handed.
func (d *driven) hops() map[netip.Addr]port.NextHop {
	d.mu.Lock()
	defer d.mu.Unlock()
	hops := map[netip.Addr]port.NextHop{}
	for _, f := range d.raws() {
		for a, h := range f.hops {
			hops[a] = h
		}
	}
	return hops
}

// onRaw says what of path raw is not in the kernel; nil if it is all there.
func (d *driven) onRaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.PathName() != "raw" || len(d.Notes()) > 0 {
		return fmt.Errorf("path %s, notes %q", d.PathName(), d.Notes())
	}
	rules, err := netns.Try("nft", "list", "ruleset")
	if err != nil || strings.Count(rules, "drop comment \"weft\"") != 1 {
		return fmt.Errorf("ingress filter: %w\n%s", err, rules)
	}
	return nil
}

// TestFilterThatCouldNotBeMade: a port whose ingress filter is gone, and could not be made again, is opened
// anew.
func TestFilterThatCouldNotBeMade(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	d := newDriven(t, k, "192.0.2.1", "")
	if err := d.onRaw(); err != nil {
		t.Fatal(err)
	}
	f := d.sockets[0].frames
	if err := f.ingress.Close(); err != nil {
		t.Error(err)
	}
	f.ingress = nil
	d.look(t, kernel.ChangedAll)
	if err := d.onRaw(); err != nil || d.sockets[0].frames == f {
		t.Errorf("the port is as it was, or %v", err)
	}
}

// TestRawStaysWithoutDescriptors: a port that works is not closed because the host cannot be looked at.
func TestRawStaysWithoutDescriptors(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	d := newDriven(t, k, "192.0.2.1", "")
	if err := d.onRaw(); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	s := &d.sockets[0]
	looked := k.Protected()
	path, why := d.pathFor(s, s.local, "eth0")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(looked, unix.EMFILE) {
		t.Fatalf("there were descriptors: %v", looked)
	}
	if path != tunnel.PathRaw || why != nil {
		t.Errorf("path %v, since %v", path, why)
	}
}

// TestRawWhenItIsPossible: a port that is on path socket for an obstacle looks again only after a while, and
// is on path raw once the obstacle is gone.
func TestRawWhenItIsPossible(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	const policy = "src 192.0.2.1 dst 192.0.2.2 dir out tmpl proto esp mode transport"
	netns.IP(t, "xfrm policy add "+policy)
	d := newDriven(t, k, "192.0.2.1", "")
	path := func() string { return d.PathName() + ": " + strings.Join(d.Notes(), "; ") }
	if got := path(); !strings.HasPrefix(got, "socket: ") || !strings.Contains(got, "IPsec policies") {
		t.Fatal(got)
	}
	netns.IP(t, "xfrm policy flush")
	d.sockets[0].retry = d.sockets[0].retry.Add(-retryRaw)
	d.look(t, kernel.ChangedAll)
	if got := path(); got != "raw: " {
		t.Errorf("no policy any more: %s", got)
	}
	netns.IP(t, "xfrm policy add "+policy)
	d.look(t, kernel.ChangedAll)
	if got := path(); !strings.HasPrefix(got, "socket: ") {
		t.Errorf("a policy at run time: %s", got)
	}
}

// TestRefusedPeersAreNotAskedFor: the kernel is asked for the routes to the peers that the table has.
func TestRefusedPeersAreNotAskedFor(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	d := newDriven(t, k, "192.0.2.1", "")
	peer := func(n byte, subnet string) tunnel.PeerSpec {
		return tunnel.PeerSpec{Name: fmt.Sprint(n), Addr: netip.AddrFrom4([4]byte{192, 0, 2, n}),
			Subnets: []netip.Prefix{pfx(subnet)}}
	}
	refused, err := d.Publish(tunnel.Spec{UnderlayMTU: 1500, Check: tunnel.CheckStrict, Peers: []tunnel.PeerSpec{
		peer(2, "10.5.2.0/24"), peer(3, "10.5.2.0/24"), peer(4, "10.5.4.0/24"),
	}})
	if err != nil || len(refused) != 1 || refused[0].Index != 1 {
		t.Fatalf("refused %v, error %v", refused, err)
	}
	if want := []netip.Addr{addr("192.0.2.2"), addr("192.0.2.4")}; fmt.Sprint(d.next.peers) != fmt.Sprint(want) {
		t.Errorf("asks for %v, want %v", d.next.peers, want)
	}
}

// awaitHops polls until ok says nothing of the next hops.
func (d *driven) awaitHops(t *testing.T, what string, ok func(map[netip.Addr]port.NextHop) error) {
	t.Helper()
	await.OK(t, what, func() error { return ok(d.hops()) })
}

package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// testSet is a set with an own lease and one peer.
func testSet(own4 string, six bool) lease.Set {
	s := lease.Set{
		Config: lease.NetworkConfig{EnableIPv4: true, Network: net4},
		Own:    lease.Record{Subnets: lease.Subnets{V4: pfx(own4)}},
		Peers: []lease.Record{{
			Subnets: lease.Subnets{V4: pfx("10.5.2.0/24")},
			Attrs:   lease.Attrs{PublicIP: addr("192.0.2.2")},
		}},
	}
	if six {
		s.Config.EnableIPv6, s.Config.IPv6Network = true, net6
		s.Own.V6 = pfx("fd00:5:0:1::/64")
	}
	return s
}

// newTestUDP makes the backend on link eth0 of the namespace, not yet running.
func newTestUDP(t *testing.T, k *kernel.Kernel, six bool) *Node { return newTestUDPOn(t, k, six, 0) }

// newTestUDPOn is newTestUDP on a path; 0 is auto.
func newTestUDPOn(t *testing.T, k *kernel.Kernel, six bool, path tunnel.Path) *Node {
	t.Helper()
	if path == 0 {
		return newTestUDPOf(t, k, six, "")
	}
	return newTestUDPOf(t, k, six, fmt.Sprintf(`{"Type":"udp","Path":%q}`, path))
}

// newTestUDPOf is newTestUDP with a Backend object; "" is none.
func newTestUDPOf(t *testing.T, k *kernel.Kernel, six bool, backend string) *Node {
	t.Helper()
	families := ""
	if six {
		families = `,"EnableIPv6":true,"IPv6Network":"fd00:5::/48"`
	}
	if backend != "" {
		backend = `,"Backend":` + backend
	}
	return openKernelBackend(t, k, `{"Network":"10.5.0.0/16"`+families+backend+`}`, nil).Node
}

// start runs u until the test ends, or stop is called.
func start(t *testing.T, u *Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- u.Run(ctx) }() // waited for in stop
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func apply(t *testing.T, u *Node, s lease.Set) {
	t.Helper()
	if err := u.Apply(t.Context(), s); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// golden is what ip shows of the device, with what differs from run to run left out.
func golden() string {
	var b strings.Builder
	for _, args := range []string{"-o addr show dev flannel0", "-4 route show proto 119",
		"-6 route show proto 119"} {
		out, err := netns.TryIP(args)
		if err != nil {
			return err.Error()
		}
		for l := range strings.Lines(out) {
			l = strings.ReplaceAll(l, "\\", "")
			if _, rest, ok := strings.Cut(l, ": "); ok {
				l = rest
			}
			fmt.Fprintln(&b, strings.Join(strings.Fields(l), " "))
		}
	}
	return b.String()
}

const wantGolden = `flannel0 inet 10.5.1.0/32 scope global flannel0 valid_lft forever preferred_lft forever
flannel0 inet6 fd00:5:0:1::/128 scope global nodad valid_lft forever preferred_lft forever
10.5.0.0/16 dev flannel0 scope link
fd00:5::/48 via fe80::1 dev flannel0 metric 1024 pref medium
`

func same(want string) func() error {
	return func() error {
		if got := golden(); got != want {
			return fmt.Errorf("got\n%swant\n%s", got, want)
		}
		return nil
	}
}

func TestUDPBringsUpAndRepairs(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := newTestUDP(t, k, true)
	apply(t, u, lease.Set{})
	if _, err := k.Device("flannel0"); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("a device before there is a lease: %v", err)
	}
	began := time.Now()
	apply(t, u, testSet("10.5.1.0/24", true))
	t.Logf("first apply took %v", time.Since(began))
	if err := same(wantGolden)(); err != nil {
		t.Error(err)
	}
	link := ip(t, "-d link show dev flannel0")
	for _, s := range []string{"mtu 1472", "qlen 1000", "vnet_hdr on", "alias weft", "type", "persist on",
		"addrgenmode none", "UP"} {
		if !strings.Contains(link, s) {
			t.Errorf("link lacks %q:\n%s", s, link)
		}
	}
	if st := u.Status(); !st.InPlace || st.Device() != "flannel0" || st.MTU != 1472 || st.Peers != 1 ||
		st.LastError != "" || st.Repaired != 0 {
		t.Errorf("status %+v", st)
	}

	start(t, u)
	for _, damage := range []string{
		"route del 10.5.0.0/16 dev flannel0",
		"-6 route del fd00:5::/48 dev flannel0",
		"addr del 10.5.1.0/32 dev flannel0",
		"-6 addr del fd00:5:0:1::/128 dev flannel0",
		"link set flannel0 down",
		"link set flannel0 mtu 1300",
		"link set flannel0 alias else",
		"link set flannel0 txqueuelen 7",
		"addr add 10.5.77.0/32 dev flannel0",
		"route add 10.5.9.0/24 dev flannel0 proto 119",
		"link del flannel0",
	} {
		ip(t, "%s", damage)
		await.OK(t, damage, same(wantGolden))
		await.OK(t, damage, func() error {
			d, err := k.Device("flannel0")
			if err == nil && (d.Alias != kernel.Alias || d.MTU != 1472 || d.TxQueueLen != 1000 || !d.Up) {
				err = fmt.Errorf("link %+v", d)
			}
			return err
		})
	}
	if st := u.Status(); st.Repaired < 10 {
		t.Errorf("repaired only %d", st.Repaired)
	}
	ip(t, "link set eth0 mtu 1300")
	await.OK(t, "too small for IPv6, and IPv4 goes on", func() error {
		if st, got := u.Status(), golden(); !strings.Contains(st.LastError, "IPv6 needs 1280") ||
			strings.Contains(got, "fd00") || !strings.Contains(got, "10.5.0.0/16") {
			return fmt.Errorf("%s\n%s", st.LastError, got)
		}
		return nil
	})
	ip(t, "link set eth0 mtu 1500")
	await.OK(t, "MTU back", same(wantGolden))
	ip(t, "addr add 172.16.0.1/32 dev flannel0")
	ip(t, "route add 172.17.0.0/16 dev flannel0")
	ip(t, "link set eth0 mtu 1400")
	await.OK(t, "MTU follows the underlay", func() error {
		if m := u.MTU(); m != 1372 {
			return fmt.Errorf("is %d", m)
		}
		return nil
	})
	if got := ip(t, "addr show dev flannel0") + ip(t, "route show dev flannel0"); !strings.Contains(got,
		"172.16.0.1/32") || !strings.Contains(got, "172.17.0.0/16") {
		t.Errorf("foreign objects were touched:\n%s", got)
	}
}

// TestUDPNeedsOneNeighbour sends to many pods over IPv6: the kernel, which has few places for neighbours in
// all, is not to spend one on each.
func TestUDPNeedsOneNeighbour(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, true)
	apply(t, u, testSet("10.5.1.0/24", true))
	start(t, u)
	one := func() error {
		for i := range 100 {
			c, err := net.Dial("udp", fmt.Sprintf("[fd00:5:0:2::%x]:7000", i+1))
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("packet"))
			if err := errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		out, err := netns.TryIP("-6 neigh show nud all dev flannel0")
		for l := range strings.Lines(out) {
			if !strings.HasPrefix(l, "ff") && !(strings.HasPrefix(l, "fe80::1 ") && strings.Contains(l, "PERMANENT")) {
				return fmt.Errorf("neighbours are\n%s", out)
			}
		}
		if err == nil && !strings.Contains(out, "PERMANENT") {
			err = fmt.Errorf("no neighbour that stays:\n%s", out)
		}
		return err
	}
	if err := one(); err != nil {
		t.Error(err)
	}
	ip(t, "link set flannel0 down") // which takes all neighbours along
	await.OK(t, "device down", one)
}

func TestUDPRestartKeepsAndMoves(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	stop := start(t, u)
	apply(t, u, testSet("10.5.1.0/24", false))
	stop()
	before, err := k.Device("flannel0")
	if err != nil {
		t.Fatalf("the TUN did not stay: %v", err)
	}
	if got := golden(); !strings.Contains(got, "10.5.0.0/16 dev flannel0") ||
		!strings.Contains(got, "10.5.1.0/32") {
		t.Errorf("address and route did not stay:\n%s", got)
	}

	u = newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.3.0/24", false)) // another lease
	start(t, u)
	if after, err := k.Device("flannel0"); err != nil || after.Index != before.Index {
		t.Errorf("the TUN was not taken up again: %+v, %v", after, err)
	}
	if got := golden(); strings.Contains(got, "10.5.1.0") || !strings.Contains(got, "10.5.3.0/32") {
		t.Errorf("addresses:\n%s", got)
	}
}

// TestUDPLeavesItsFormerNetwork is a config with another Network: the TUN moves, and
// nothing of the old network stays to swallow packets.
func TestUDPLeavesItsFormerNetwork(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	stop := start(t, u)
	apply(t, u, testSet("10.5.1.0/24", false))
	stop()

	set := testSet("10.6.1.0/24", false)
	set.Config.Network, set.Peers = pfx("10.6.0.0/16"), nil
	u = newTestUDP(t, k, false)
	u.cfg.Network.NetworkConfig, u.cfg.Former = set.Config, []netip.Prefix{net4}
	start(t, u)
	apply(t, u, set)
	const want = `flannel0 inet 10.6.1.0/32 scope global flannel0 valid_lft forever preferred_lft forever
10.6.0.0/16 dev flannel0 scope link
`
	if err := same(want)(); err != nil {
		t.Error(err)
	}
	if _, err := k.Device("flannel1"); !errors.Is(err, kernel.ErrNoLink) {
		t.Errorf("a second device: %v", err)
	}
}

// TestUDPGivesUp is a lease that another node has taken: the address goes, and the
// route stays, so that nothing leaks to the default route.
func TestUDPGivesUp(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	start(t, u)
	apply(t, u, testSet("10.5.1.0/24", false))
	lost := testSet("10.5.1.0/24", false)
	lost.Own = lease.Record{}
	apply(t, u, lost)
	if got := golden(); strings.Contains(got, "10.5.1.0/32") ||
		!strings.Contains(got, "10.5.0.0/16 dev flannel0") {
		t.Errorf("after the subnet was lost:\n%s", got)
	}
	if n := len(u.Engine().Peers()); n != 0 {
		t.Errorf("%d peers are still in the table", n)
	}
	apply(t, u, testSet("10.5.3.0/24", false))
	if got := golden(); !strings.Contains(got, "10.5.3.0/32") || len(u.Engine().Peers()) == 0 {
		t.Errorf("after a new lease:\n%s", got)
	}
}

func TestUDPAdoptsFlannels(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	ip(t, "tuntap add dev flannel0 mode tun")
	ip(t, "addr add 10.5.8.0/32 dev flannel0")
	ip(t, "link set flannel0 up")
	ip(t, "route add 10.5.0.0/16 dev flannel0 scope global")
	before, _ := k.Device("flannel0")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	after, _ := k.Device("flannel0")
	if want := []string{"link flannel0", "route 10.5.0.0/16 dev flannel0"}; after.Index != before.Index ||
		!slices.Equal(u.Status().Adopted, want) {
		t.Errorf("adopted %q, device %d then %d", u.Status().Adopted, before.Index, after.Index)
	}
	if got := ip(t, "route show 10.5.0.0/16") + ip(t, "addr show dev flannel0"); strings.Count(got,
		"10.5.0.0/16") != 1 || strings.Contains(got, "10.5.8.0") {
		t.Errorf("after taking over:\n%s", got)
	}
	if got := ip(t, "addr show dev flannel0"); strings.Contains(got, "inet6") {
		t.Errorf("IPv6 on the device of an IPv4 overlay:\n%s", got)
	}
}

func TestUDPNames(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	other, err := port.OpenTUN(port.TUNOptions{Name: "flannel0"}) // another network's daemon
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	ip(t, "addr add 10.9.1.0/32 dev flannel0")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	if d := u.Status().Device(); d != "flannel1" {
		t.Errorf("device %s", d)
	}

	// A second daemon for the same network is told so, and leaves all as it is.
	netns.EtherLink(t, "eth1", 1500, "198.51.100.1/24")
	two := newTestUDP(t, k, false)
	defer func() { _ = two.Close() }()
	two.under.Now.Addr4, two.cfg.Underlay.Addr4 = addr("192.0.2.1"), addr("192.0.2.1")
	err = two.Apply(t.Context(), testSet("10.5.1.0/24", false))
	if err == nil || !strings.Contains(err.Error(), "flanneld") || !strings.Contains(err.Error(), "running") {
		t.Errorf("second daemon: %v", err)
	}
	if st := two.Status(); st.InPlace || st.LastError == "" {
		t.Errorf("status %+v", st)
	}
}

func TestUDPReportsForeignRoute(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	ip(t, "route add 10.5.0.0/16 dev eth0 proto static")
	u := newTestUDP(t, k, false)
	err := u.Apply(t.Context(), testSet("10.5.1.0/24", false))
	if err == nil || !strings.Contains(err.Error(), "10.5.0.0/16") {
		t.Errorf("apply: %v", err)
	}
	if st := u.Status(); st.InPlace || st.Pending != 1 {
		t.Errorf("status %+v", st)
	}
	start(t, u)
	ip(t, "route del 10.5.0.0/16 dev eth0")
	await.OK(t, "the way is free", func() error {
		if st := u.Status(); !st.InPlace {
			return errors.New(st.LastError)
		}
		return nil
	})
}

func TestUDPSurvivesUnderlay(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	apply(t, u, testSet("10.5.1.0/24", false))
	start(t, u)
	lost := func(want string) func() error {
		return func() error {
			if st := u.Status(); st.UnderlayLost != want {
				return fmt.Errorf("lost %q, want %q", st.UnderlayLost, want)
			}
			return nil
		}
	}
	ip(t, "addr del 192.0.2.1/24 dev eth0")
	await.OK(t, "address lost", lost("link eth0 has no address 192.0.2.1"))
	ip(t, "addr add 192.0.2.1/24 dev eth0")
	await.OK(t, "address back", lost(""))
	ip(t, "link del eth0")
	await.OK(t, "link lost", lost("link eth0 is gone"))
	netns.EtherLink(t, "eth0", 1450, "192.0.2.1/24")
	await.OK(t, "link back", lost(""))
	await.OK(t, "MTU of the new link", func() error {
		if m := u.MTU(); m != 1422 {
			return fmt.Errorf("%d", m)
		}
		return nil
	})
}

func TestUDPFollowsNewAddress(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	u := newTestUDP(t, k, false)
	var seen []netip.Addr // guarded by u.mu, as the callback is
	u.cfg.UnderlayChanged = func(now underlay.Link) { seen = append(seen, now.Ext4) }
	apply(t, u, testSet("10.5.1.0/24", false))
	u.grace = 0
	start(t, u)
	ip(t, "addr add 192.0.2.9/32 dev eth0")
	ip(t, "addr del 192.0.2.1/24 dev eth0")
	local := func(want string) func() error {
		return func() error {
			u.mu.Lock()
			defer u.mu.Unlock()
			sockets, err := netns.Try("ss", "-Hlun", "sport = :8285")
			if err != nil || !strings.Contains(sockets, want+":8285 ") || strings.Count(sockets, "\n") != 1 ||
				u.under.Lost != "" {
				return fmt.Errorf("%w: lost %q, sockets\n%s", err, u.under.Lost, sockets)
			}
			return nil
		}
	}
	await.OK(t, "another address of the link", local("192.0.2.9"))
	ip(t, "addr add 192.0.2.1/24 dev eth0")
	await.OK(t, "the chosen address is back", local("192.0.2.1"))
	u.mu.Lock()
	defer u.mu.Unlock()
	if want := []netip.Addr{addr("192.0.2.9"), addr("192.0.2.1")}; !slices.Equal(seen, want) {
		t.Errorf("told of %v", seen)
	}
}

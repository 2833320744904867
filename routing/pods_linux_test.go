package routing

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/netns"
)

// TestPodsBesideABridge checks that host and pods of a bridge find the pods that are attached directly, also
// if the bridge comes after them, and that nothing of it stays when they or the bridge are gone.
func TestPodsBesideABridge(t *testing.T) {
	other := aloneInNamespace(t)
	k := newNamespace(t) // where the thread stays
	ip(t, "link set lo up")
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	u := newTestUDP(t, k, true)
	stop := start(t, u)
	set := testSet("10.5.1.0/24", true)
	apply(t, u, set)
	pods := []netip.Addr{addr("10.5.1.5"), addr("10.5.1.6"), addr("fd00:5:0:1::5")}
	u.SetPods(pods)
	await.OK(t, "without a bridge there is one route for all", same(wantGolden))

	for _, args := range []string{
		"link add cni0 type bridge",
		"link set cni0 up",
		"addr add 10.5.1.1/24 dev cni0",
		"addr add fd00:5:0:1::1/64 dev cni0 nodad",
		"link add veth0 type veth peer name pod0",
		"link set veth0 master cni0 up",
		fmt.Sprintf("link set pod0 netns /proc/%d/fd/%d", os.Getpid(), other.NS),
	} {
		ip(t, "%s", args)
	}
	for _, f := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+f, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args string) (out string) {
		t.Helper()
		if err := other.Do(func() (err error) { out, err = netns.TryIP(args); return err }); err != nil {
			t.Fatal(args, err, out)
		}
		return out
	}
	in("link set pod0 up")
	in("addr add 10.5.1.9/24 dev pod0")
	in("addr add fd00:5:0:1::9/64 dev pod0 nodad")

	const withPods = `flannel0 inet 10.5.1.0/32 scope global flannel0 valid_lft forever preferred_lft forever
flannel0 inet6 fd00:5:0:1::/128 scope global nodad valid_lft forever preferred_lft forever
10.5.0.0/16 dev flannel0 scope link
10.5.1.5 dev flannel0 scope link
10.5.1.6 dev flannel0 scope link
fd00:5:0:1::5 via fe80::1 dev flannel0 metric 1024 pref medium
fd00:5::/48 via fe80::1 dev flannel0 metric 1024 pref medium
`
	await.OK(t, "with one each has its own", same(withPods))
	mac := linkMAC(t, "cni0")
	var socket net.PacketConn
	if err := other.Do(func() (err error) { socket, err = net.ListenPacket("udp", ":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	await.OK(t, "the bridge's pods find them", func() error {
		for _, p := range pods {
			// what matters is who is asked for
			_, _ = socket.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(p, 9)))
		}
		list := in("neigh show dev pod0")
		for _, p := range pods {
			if !strings.Contains(list, p.String()+" lladdr "+mac) {
				return fmt.Errorf("%s is not %s:\n%s\n%s\n%s\n%+v", p, mac, list, proxied(t), golden(), u.Status().Notes)
			}
		}
		return nil
	})
	if list := in("neigh show 10.5.1.7"); strings.Contains(list, mac) {
		t.Errorf("the host answers for an address that is nobody's: %s", list)
	}

	// A restart does not know the pods at first, and leaves their routes.
	stop()
	u = newTestUDP(t, k, true)
	stop = start(t, u)
	apply(t, u, set)
	if got := golden(); got != withPods {
		t.Errorf("after a restart:\n%s", got)
	}
	u.SetPods(pods[:1])
	await.OK(t, "two are gone", func() error {
		if got := golden(); strings.Contains(got, "10.5.1.6") || strings.Contains(got, "fd00:5:0:1::5") ||
			!strings.Contains(got, "10.5.1.5") {
			return errors.New(got)
		}
		if got := proxied(t); got != "10.5.1.5 dev cni0 proxy" {
			return errors.New(got)
		}
		return nil
	})
	u.SetPods(nil)
	await.OK(t, "the last is gone", func() error {
		if got := proxied(t); got != "" {
			return errors.New(got)
		}
		return same(wantGolden)()
	})
	u.SetPods(pods)
	await.OK(t, "back", same(withPods))

	// All have gone while nobody looked.
	stop()
	u = newTestUDP(t, k, true)
	start(t, u)
	apply(t, u, set)
	u.SetPods(nil)
	await.OK(t, "nothing of an earlier process stays", func() error {
		if got := proxied(t); got != "" {
			return errors.New(got)
		}
		return same(wantGolden)()
	})
	u.SetPods(pods)
	await.OK(t, "back again", same(withPods))
	ip(t, "link del cni0")
	await.OK(t, "the bridge is gone", same(wantGolden))
}

// proxied has all proxy entries of the namespace, one after another.
func proxied(t *testing.T) string {
	t.Helper()
	var out []string
	for _, family := range []string{"-4", "-6"} {
		for l := range strings.Lines(ip(t, "%s neigh show proxy", family)) {
			out = append(out, strings.Join(strings.Fields(l), " "))
		}
	}
	return strings.Join(out, "; ")
}

// linkMAC is a link's address, as ip shows it.
func linkMAC(t *testing.T, name string) string {
	t.Helper()
	f := strings.Fields(ip(t, "-o link show %s", name))
	i := slices.Index(f, "link/ether")
	if i < 0 || i+1 == len(f) {
		t.Fatalf("%s has no MAC: %q", name, f)
	}
	return f[i+1]
}

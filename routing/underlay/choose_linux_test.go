package underlay

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

// space is a host that is a network namespace of its own.
type space struct {
	*netns.Namespace
	t *testing.T
}

func newSpace(t *testing.T) (space, *kernel.Kernel) {
	t.Helper()
	n := netns.New(t, t.Name())
	var k *kernel.Kernel
	err := n.Do(func() (err error) {
		k, err = kernel.OpenKernel()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return space{n, t}, k
}

// ip runs the command of that name in the namespace.
func (s space) ip(args string, a ...any) {
	s.t.Helper()
	cmd := exec.Command("ip", strings.Fields(fmt.Sprintf(args, a...))...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.Run(cmd); err != nil {
		s.t.Fatalf("%q: %v (package iproute2 has ip)\n%s", cmd.Args, err, &out)
	}
}

// link makes one end of a veth pair with addresses; kernels without module dummy have veth.
func (s space) link(name string, mtu int, addrs ...string) {
	s.t.Helper()
	s.ip("link add %s mtu %d type veth peer name %s-far mtu %d", name, mtu, name, mtu)
	s.ip("link set %s-far up", name)
	s.ip("link set %s up", name)
	for _, a := range addrs {
		opt := ""
		if strings.Contains(a, ":") {
			opt = " nodad"
		}
		s.ip("addr add %s dev %s%s", a, name, opt)
	}
	await.OK(s.t, name+" up", func() error { // the carrier comes a moment after the link is up
		l, err := s.Netlink().LinkByName(name)
		if err == nil && l.Attrs().OperState != netlink.OperUp {
			err = fmt.Errorf("it is %s", l.Attrs().OperState)
		}
		return err
	})
}

func TestChooseInNamespace(t *testing.T) {
	h, k := newSpace(t)
	h.link("eth0", 1500, "192.0.2.10/24", "192.0.2.11/24", "2001:db8::10/64")
	h.link("eth1", 9000, "198.51.100.3/24")
	h.link("eth2", 1400, "203.0.113.3/24")
	h.ip("link set eth2 down")
	both := Options{IPv4: true, IPv6: true}

	if _, err := Choose(k, both); err == nil || !strings.Contains(err.Error(), "default") {
		t.Errorf("without a default route: %v", err)
	}
	h.ip("route add default via 192.0.2.1 metric 200")
	h.ip("route add default via 198.51.100.1 metric 100")
	h.ip("route add 8.8.8.0/24 via 192.0.2.1 src 192.0.2.11")
	h.ip("-6 route add 2001:db8:8::/48 via 2001:db8::1")

	v4 := Options{IPv4: true}
	for _, c := range []struct {
		name string
		o    Options
		want Link
	}{
		{"lowest metric", v4, Link{Name: "eth1", MTU: 9000, Addr4: addr("198.51.100.3"),
			Ext4: addr("198.51.100.3")}},
		{"both families", both, Link{Name: "eth0", MTU: 1500, Addr4: addr("192.0.2.10"), Ext4: addr("192.0.2.10"),
			Addr6: addr("2001:db8::10"), Ext6: addr("2001:db8::10")}},
		{"by the kernel's route", Options{IPv4: true, CanReach: addr("8.8.8.8")},
			Link{Name: "eth0", MTU: 1500, Addr4: addr("192.0.2.11"), Ext4: addr("192.0.2.11")}},
		{"by the kernel's IPv6 route", Options{IPv6: true, CanReach: addr("2001:db8:8::8")},
			Link{Name: "eth0", MTU: 1500, Addr6: addr("2001:db8::10"), Ext6: addr("2001:db8::10")}},
	} {
		got, err := Choose(k, c.o)
		got.Index = 0
		if err != nil || got != c.want {
			t.Errorf("%s:\ngot  %+v, %v\nwant %+v", c.name, got, err, c.want)
		}
	}
	h.ip("route add default nexthop via 192.0.2.1 nexthop via 198.51.100.1")
	if got, err := Choose(k, v4); err != nil || got.Name != "eth0" {
		t.Errorf("default route with two next hops: %+v, %v", got, err)
	}
	_, err := Choose(k, Options{IPv4: true, CanReach: addr("192.0.2.10")})
	if err == nil || !strings.Contains(err.Error(), "address") {
		t.Errorf("can reach itself: %v", err)
	}
}

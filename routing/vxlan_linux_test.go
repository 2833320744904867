package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

// kernelTest is a node on eth0 of the test's namespace.
type kernelTest struct {
	*Node
	t    *testing.T
	stop func()
}

// openKernelBackend makes the backend that config names, in full JSON, not yet running.
func openKernelBackend(t *testing.T, k *kernel.Kernel, config string, edit func(*BackendConfig)) *kernelTest {
	t.Helper()
	network, err := Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	c := newBackendConfig(t, k, network)
	if edit != nil {
		edit(&c)
	}
	b, err := NewNode(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return &kernelTest{Node: b, t: t}
}

// newBackendConfig is for a backend on link eth0 of the namespace.
func newBackendConfig(t *testing.T, k *kernel.Kernel, network Network) BackendConfig {
	t.Helper()
	c := BackendConfig{Kernel: k, Network: network, Node: "a", MayRunCommands: func() error { return nil },
		UnderlayOptions: underlay.Options{IPv4: true, IPv6: network.EnableIPv6, Interfaces: []string{"eth0"}}}
	var err error
	if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs the backend until the test ends, or stop is called.
func (k *kernelTest) start() { k.stop = start(k.t, k.Node) }

func (k *kernelTest) apply(s lease.Set) {
	k.t.Helper()
	if err := k.Apply(k.t.Context(), s); err != nil {
		k.t.Fatalf("apply: %v", err)
	}
}

const (
	vxlan4    = `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`
	vxlanDual = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"vxlan"}}`
)

// kernelSet is a set with our lease and those peers.
func kernelSet(b *kernelTest, peers ...lease.Record) lease.Set {
	s := lease.Set{Config: b.cfg.Network.NetworkConfig, Own: vxlanPeer(1), Peers: peers}
	if !b.cfg.Network.EnableIPv6 {
		s.Own.V6 = netip.Prefix{}
	}
	return s
}

// kernelListing is what iproute2 shows of the overlay, with what differs from run to run left out.
func kernelListing() string {
	var b strings.Builder
	show := func(name string, args ...string) {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			out = fmt.Appendf(nil, "%s %q: %v %s\n", name, args, err, out)
		}
		var lines []string
		for l := range strings.Lines(string(out)) {
			f := strings.Fields(strings.ReplaceAll(l, "\\", " "))
			if args[0] == "-o" { // the interface's number
				f = f[1:]
			}
			lines = append(lines, strings.Join(f, " ")+"\n")
		}
		slices.Sort(lines) // tables are listed in the order of their hashes
		b.WriteString(strings.Join(lines, ""))
	}
	for _, dev := range []string{"flannel.1", "flannel-v6.1"} {
		if _, err := netns.TryIP("link show " + dev); err != nil {
			continue
		}
		show("ip", "-o", "addr", "show", "dev", dev)
		show("ip", "neigh", "show", "dev", dev)
		show("bridge", "fdb", "show", "dev", dev)
	}
	show("ip", "-4", "route", "show", "proto", "119")
	show("ip", "-6", "route", "show", "proto", "119")
	return b.String()
}

func listed(want string) func() error {
	return func() error {
		if got := kernelListing(); got != want {
			return fmt.Errorf("got\n%swant\n%s", got, want)
		}
		return nil
	}
}

// The same as flannel makes, but for the protocol of the routes.
const vxlanGolden = `flannel.1 inet 10.5.1.0/32 scope global flannel.1 valid_lft forever preferred_lft forever
10.5.2.0 lladdr 0e:00:00:00:04:02 PERMANENT
10.5.3.0 lladdr 0e:00:00:00:04:03 PERMANENT
0e:00:00:00:04:02 dst 192.0.2.2 self permanent
0e:00:00:00:04:03 dst 192.0.2.3 self permanent
flannel-v6.1 inet6 fd00:5:0:1::/128 scope global nodad valid_lft forever preferred_lft forever
fd00:5:0:2:: lladdr 0e:00:00:00:06:02 PERMANENT
fd00:5:0:3:: lladdr 0e:00:00:00:06:03 PERMANENT
0e:00:00:00:06:02 dst 2001:db8::2 self permanent
0e:00:00:00:06:03 dst 2001:db8::3 self permanent
10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink
10.5.3.0/24 via 10.5.3.0 dev flannel.1 onlink
fd00:5:0:2::/64 via fd00:5:0:2:: dev flannel-v6.1 metric 1024 onlink pref medium
fd00:5:0:3::/64 via fd00:5:0:3:: dev flannel-v6.1 metric 1024 onlink pref medium
`

func TestVXLANBringsUpAndRepairs(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	b := openKernelBackend(t, k, vxlanDual, nil)
	b.apply(lease.Set{})
	if got := kernelListing(); got != "" {
		t.Errorf("before there is a lease:\n%s", got)
	}
	set := kernelSet(b, vxlanPeer(2), vxlanPeer(3))
	b.apply(set)
	if err := listed(vxlanGolden)(); err != nil {
		t.Fatal(err)
	}
	b.apply(set)
	if st := b.Status(); !st.InPlace || !st.Up || st.Device() != "flannel.1" || st.MTU != 1430 ||
		st.Peers != 2 || st.Repaired != 0 || st.Path != "kernel" {
		t.Errorf("status %+v", st)
	}
	data, v6data := b.Publish()
	for dev, want := range map[string]struct {
		data []byte
		link string
	}{"flannel.1": {data, "mtu 1450"}, "flannel-v6.1": {v6data, "mtu 1430"}} {
		v, err := k.Device(dev)
		if err != nil || string(want.data) != string(vtepData(1, v.MAC)) || v.Alias != kernel.Alias {
			t.Errorf("%s: %+v, %v, published %s", dev, v, err, want.data)
		}
		if got := ip(t, "-d link show dev %s", dev); !strings.Contains(got, want.link) ||
			!strings.Contains(got, "nolearning") || !strings.Contains(got, "dstport 8472") {
			t.Errorf("%s:\n%s", dev, got)
		}
	}

	b.start()
	for _, drift := range []struct{ name, do string }{
		{"device deleted", "ip link del flannel.1"},
		{"the other device deleted", "ip link del flannel-v6.1"},
		{"device down", "ip link set flannel.1 down"},
		{"IPv6 device down", "ip link set flannel-v6.1 down"},
		{"MAC changed", "ip link set flannel.1 address 02:00:00:00:00:99"},
		{"MTU changed", "ip link set flannel.1 mtu 1000"},
		{"alias changed", "ip link set flannel.1 alias weft-not"},
		{"address deleted", "ip addr del 10.5.1.0/32 dev flannel.1"},
		{"address of an old lease", "ip addr add 10.5.77.0/32 dev flannel.1"},
		{"route deleted", "ip route del 10.5.2.0/24"},
		{"IPv6 route deleted", "ip -6 route del fd00:5:0:3::/64"},
		{"route changed", "ip route replace 10.5.2.0/24 via 10.5.9.9 dev flannel.1 onlink proto 119"},
		{"stale route", "ip route add 10.5.9.0/24 via 10.5.9.0 dev flannel.1 onlink proto 119"},
		{"entry deleted", "bridge fdb del 0e:00:00:00:04:02 dev flannel.1"},
		{"entry changed", "bridge fdb replace 0e:00:00:00:04:02 dst 192.0.2.99 dev flannel.1 self permanent"},
		{"stale entry", "bridge fdb append 0e:00:00:00:04:99 dst 192.0.2.99 dev flannel.1 self permanent"},
		{"IPv6 entry deleted", "bridge fdb del 0e:00:00:00:06:03 dev flannel-v6.1"},
		{"neighbour deleted", "ip neigh del 10.5.2.0 dev flannel.1"},
		{"neighbour changed", "ip neigh replace fd00:5:0:2:: lladdr 02:00:00:00:00:01 dev flannel-v6.1 nud " +
			"reachable"},
		{"stale neighbour", "ip neigh add 10.5.99.0 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent"},
		{"underlay down and up", "ip link set eth0 down && ip link set eth0 up && ip addr replace 2001:db8::1/64 " +
			"dev eth0 nodad"},
	} {
		before := b.Status().Repaired
		if out, err := exec.Command("sh", "-c", drift.do).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", drift.do, err, out)
		}
		await.OK(t, drift.name, func() error {
			if err := listed(vxlanGolden)(); err != nil {
				return err
			}
			v, err := k.Device("flannel.1")
			if err != nil || string(data) != string(vtepData(1, v.MAC)) || v.MTU != 1450 || v.Alias != kernel.Alias ||
				!v.Up {
				return fmt.Errorf("%+v, %v", v, err)
			}
			if st := b.Status(); st.Repaired == before && !strings.HasPrefix(drift.name, "underlay") || !st.InPlace {
				return fmt.Errorf("repaired %d, %s", st.Repaired, st.LastError)
			}
			return nil
		})
	}
	ip(t, "route add 172.17.0.0/16 dev flannel.1")
	ip(t, "addr add 172.16.0.1/32 dev flannel.1")
	ip(t, "neigh add 172.16.0.2 lladdr 02:00:00:00:00:01 dev flannel.1 nud permanent")
	b.apply(kernelSet(b, vxlanPeer(3)))
	got := ip(t, "addr show dev flannel.1") + ip(t, "route show dev flannel.1") + ip(t,
		"neigh show dev flannel.1")
	for _, keep := range []string{"172.16.0.1/32", "172.17.0.0/16", "172.16.0.2 lladdr"} {
		if !strings.Contains(got, keep) {
			t.Errorf("a foreign object was touched: %s\n%s", keep, got)
		}
	}
	if strings.Contains(kernelListing(), "10.5.2.0") || strings.Contains(kernelListing(), ":02 ") {
		t.Errorf("a peer that left:\n%s", kernelListing())
	}
}

func TestVXLANFollowsUnderlay(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	var seen []int // guarded by b.mu, as the callback is
	var status func() Status
	b := openKernelBackend(t, k, vxlan4, func(c *BackendConfig) {
		c.UnderlayChanged = func(u underlay.Link) {
			seen = append(seen, u.MTU)
			if got := status().MTU; got != u.MTU-50 {
				t.Errorf("who is told that the underlay's MTU is %d finds %d for pods", u.MTU, got)
			}
		}
	})
	status, b.grace = b.Status, 0
	b.apply(kernelSet(b, vxlanPeer(2)))
	b.start()
	ip(t, "link set eth0 mtu 1400")
	mtu := func(want int) func() error {
		return func() error {
			if v, err := k.Device("flannel.1"); err != nil || v.MTU != want || b.MTU() != want {
				return fmt.Errorf("%+v, %v, MTU %d", v, err, b.MTU())
			}
			return nil
		}
	}
	await.OK(t, "the smaller MTU", mtu(1350))
	ip(t, "addr add 192.0.2.9/24 dev eth0")
	ip(t, "addr del 192.0.2.1/24 dev eth0")
	ip(t, "addr replace 192.0.2.9/24 dev eth0")
	local := func(want string) func() error {
		return func() error {
			if v, err := k.Device("flannel.1"); err != nil || v.Local != addr(want) || !b.Status().InPlace {
				return fmt.Errorf("%+v, %v, %s", v, err, b.Status().LastError)
			}
			return nil
		}
	}
	await.OK(t, "another address of the node", local("192.0.2.9"))
	ip(t, "link del eth0") // takes the device with it
	await.OK(t, "lost", func() error {
		if st := b.Status(); st.UnderlayLost == "" || st.InPlace {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	await.OK(t, "another link of the name", local("192.0.2.1"))
	await.OK(t, "its MTU", mtu(1450))
	if !strings.Contains(kernelListing(), "10.5.2.0/24") {
		t.Errorf("peers:\n%s", kernelListing())
	}
	b.stop()
	if !slices.Contains(seen, 1400) {
		t.Errorf("told of MTUs %v", seen)
	}
	if !strings.Contains(kernelListing(), "10.5.2.0/24") {
		t.Errorf("a backend that ends leaves the kernel to forward:\n%s", kernelListing())
	}
}

// What flannel left is used as it is: no packet is lost, and no peer has to learn another MAC.
func TestVXLANAdoptsFlannels(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	const flannelsMAC = "c6:d2:32:6f:8f:44"
	ip(t, "link add flannel.1 address %s mtu 1450 type vxlan id 1 dev eth0 local 192.0.2.1 dstport 8472 "+
		"nolearning", flannelsMAC)
	ip(t, "addr add 10.5.1.0/32 dev flannel.1")
	ip(t, "link set flannel.1 up")
	for _, n := range []string{"2", "9"} {
		ip(t, "neigh add 10.5.%s.0 lladdr 0e:00:00:00:04:0%s dev flannel.1 nud permanent", n, n)
		ip(t, "route add 10.5.%s.0/24 via 10.5.%s.0 dev flannel.1 onlink", n, n)
		if out, err := exec.Command("bridge", "fdb", "append", "0e:00:00:00:04:0"+n, "dst", "192.0.2."+n, "dev",
			"flannel.1", "self", "permanent").CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	ip(t, "route add 10.5.8.0/24 via 192.0.2.8 dev eth0") // of its DirectRouting
	before, err := k.Device("flannel.1")
	if err != nil {
		t.Fatal(err)
	}
	b := openKernelBackend(t, k, vxlan4, nil)
	if data, v6data := b.Publish(); string(data) != `{"VNI":1,"VtepMAC":"`+flannelsMAC+`"}` || v6data != nil {
		t.Errorf("published %s %s", data, v6data)
	}
	b.apply(kernelSet(b, vxlanPeer(2)))
	const want = `flannel.1 inet 10.5.1.0/32 scope global flannel.1 valid_lft forever preferred_lft forever
10.5.2.0 lladdr 0e:00:00:00:04:02 PERMANENT
0e:00:00:00:04:02 dst 192.0.2.2 self permanent
10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink
`
	if err := listed(want)(); err != nil {
		t.Error(err)
	}
	if got := ip(t, "route show"); strings.Contains(got, "10.5.8.0") || strings.Contains(got, "10.5.9.0") {
		t.Errorf("flannel's stale routes:\n%s", got)
	}
	after, _ := k.Device("flannel.1")
	if st := b.Status(); after.Index != before.Index || !slices.Contains(st.Adopted, "link flannel.1") ||
		!slices.Contains(st.Adopted, "route 10.5.2.0/24 dev flannel.1") {
		t.Errorf("adopted %q, device %d then %d", st.Adopted, before.Index, after.Index)
	}
	// Later the same shape is somebody's own.
	ip(t, "route add 10.5.8.0/24 via 192.0.2.8 dev eth0")
	b.apply(kernelSet(b, vxlanPeer(2)))
	if got := ip(t, "route show"); !strings.Contains(got, "10.5.8.0/24") {
		t.Errorf("somebody's route was taken away:\n%s", got)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	again := openKernelBackend(t, k, vxlan4, nil)
	defer func() { _ = again.Close() }()
	if data, _ := again.Publish(); !strings.Contains(string(data), flannelsMAC) {
		t.Errorf("after a restart: %s", data)
	}
}

func TestVXLANRemakesAnotherDevice(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	for _, have := range []string{
		"id 1 dev eth0 local 192.0.2.1 dstport 4789 nolearning",
		"id 2 dev eth0 local 192.0.2.1 dstport 8472 nolearning",
		"id 1 dev eth0 local 192.0.2.7 dstport 8472 nolearning",
		"id 1 dev eth0 local 192.0.2.1 dstport 8472 learning",
		"id 1 dev eth0 local 192.0.2.1 dstport 8472 nolearning gbp",
		"id 1 dev eth0 local 192.0.2.1 dstport 8472 nolearning ttl 5",
		"id 1 local 192.0.2.1 dstport 8472 nolearning",
	} {
		ip(t, "link add flannel.1 address 0e:00:00:00:00:77 type vxlan %s", have)
		b := openKernelBackend(t, k, vxlan4, nil)
		b.apply(kernelSet(b, vxlanPeer(2)))
		got := ip(t, "-d link show dev flannel.1")
		for _, want := range []string{"192.0.2.1", "8472", "0e:00:00:00:00:77", "alias weft"} {
			if !strings.Contains(got, want) || strings.Contains(got, "gbp") {
				t.Errorf("%s: want %q in\n%s", have, want, got)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		ip(t, "link del flannel.1")
	}
}

// What is not ours is not touched, and the error says what to do.
func TestVXLANRefuses(t *testing.T) {
	k := aloneInNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	for _, c := range []struct{ make, want string }{
		{"link add flannel.1 type bridge", "flannel.1"},
		{"link add other type vxlan id 1 dev eth0 local 192.0.2.1 dstport 8472", "8472"},
		{"link add flannel.1 type vxlan id 1 dev eth0 dstport 8472", `alias "calico"`},
	} {
		ip(t, "%s", c.make)
		name := strings.Fields(c.make)[2]
		if strings.Contains(c.want, "alias") {
			ip(t, "link set %s alias calico", name)
		}
		before, _ := k.Device(name)
		b := openKernelBackend(t, k, vxlan4, nil)
		err := b.Apply(t.Context(), kernelSet(b, vxlanPeer(2)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.make, err)
		}
		if after, err := k.Device(name); err != nil || after.Index != before.Index {
			t.Errorf("%s: touched: %v", c.make, err)
		}
		if st := b.Status(); st.Up || st.InPlace {
			t.Errorf("%s: %+v", c.make, st)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		ip(t, "link del %s", name)
	}
	ip(t, "link add flannel.1 type vxlan id 1 dev eth0 dstport 8472")
	ip(t, "addr add 10.77.1.0/32 dev flannel.1")
	b := openKernelBackend(t, k, vxlan4, nil)
	if err := b.Apply(t.Context(), kernelSet(b)); err == nil ||
		!strings.Contains(err.Error(), "another network") {
		t.Errorf("another network's device: %v", err)
	}
	_ = b.Close()
}

// IPv6 refuses a gateway that another route leads to: what is ours among these gives way at once.
func TestVXLANTakesOverIPv6Routes(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "-6 route add fd00:5:0:2::/64 via 2001:db8::2 dev eth0 proto 119") // of host-gw, or a direct route
	ip(t, "-6 route add fd00:5::/48 dev eth0 proto 119")                     // of udp
	b := openKernelBackend(t, k, vxlanDual, nil)
	defer func() { _ = b.Close() }()
	b.apply(kernelSet(b, vxlanPeer(2), vxlanPeer(3)))
	if err := listed(vxlanGolden)(); err != nil {
		t.Error(err)
	}
	ip(t, "-6 route add fd00:5:0:8::/61 dev eth0")
	if err := b.Apply(t.Context(), kernelSet(b, vxlanPeer(2), vxlanPeer(9))); err == nil ||
		!strings.Contains(err.Error(), "fd00:5:0:9") {
		t.Errorf("somebody's: %v", err)
	}
}

func TestVXLANDirectRouting(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	b := openKernelBackend(t, k, strings.Replace(vxlan4, `"vxlan"`, `"vxlan","DirectRouting":true`, 1), nil)
	far := vxlanPeer(3)
	far.PublicIP = addr("198.51.100.3")
	ip(t, "route add default via 192.0.2.254 dev eth0")
	b.apply(kernelSet(b, vxlanPeer(2), far))
	b.start()
	const want = `flannel.1 inet 10.5.1.0/32 scope global flannel.1 valid_lft forever preferred_lft forever
10.5.3.0 lladdr 0e:00:00:00:04:03 PERMANENT
0e:00:00:00:04:03 dst 198.51.100.3 self permanent
10.5.2.0/24 via 192.0.2.2 dev eth0
10.5.3.0/24 via 10.5.3.0 dev flannel.1 onlink
`
	if err := listed(want)(); err != nil {
		t.Error(err)
	}
	ip(t, "route add 192.0.2.2/32 via 192.0.2.254 dev eth0")
	await.OK(t, "tunnel, now that a router stands between", func() error {
		if got := kernelListing(); !strings.Contains(got, "10.5.2.0/24") || !strings.Contains(got, "192.0.2.2") {
			return errors.New(got)
		}
		return nil
	})
	ip(t, "route del 192.0.2.2/32")
	ip(t, "route add 198.51.100.0/24 dev eth0")
	await.OK(t, "both direct", func() error {
		if got := kernelListing(); strings.Contains(got, "onlink") || strings.Contains(got, "self") ||
			!strings.Contains(got, "198.51.100.3") {
			return errors.New(got)
		}
		return nil
	})
	await.OK(t, "the status says so", func() error { // after the kernel has it
		if r := b.Status().Reached; len(r) != 2 || r[1].How != HowRoute || r[1].Reason != "" {
			return fmt.Errorf("reached %+v", r)
		}
		return nil
	})
}

func TestOldKernelsChecksumOffloadIsOff(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	b := openKernelBackend(t, k, vxlan4, nil)
	defer func() { _ = b.Close() }()
	b.release = "5.4.0-150-generic"
	b.apply(kernelSet(b))
	d, err := k.Device("flannel.1")
	if err != nil {
		t.Fatal(err)
	}
	if on, err := k.Features(d.Index); err != nil || on[0][kernel.TxChecksum] {
		t.Errorf("%s: %v, %v", kernel.TxChecksum, on, err)
	}
	if n := b.Status().Notes; len(n) != 1 || !strings.Contains(n[0], "5.4.0-150-generic") {
		t.Errorf("notes %q", n)
	}
}

func TestVXLANGivesUp(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	b := openKernelBackend(t, k, vxlan4, nil)
	b.apply(kernelSet(b, vxlanPeer(2)))
	b.start()
	lost := kernelSet(b, vxlanPeer(2))
	lost.Own = lease.Record{}
	b.apply(lost)
	if got := kernelListing(); strings.Contains(got, "10.5.1.0/32") ||
		!strings.Contains(got, "10.5.2.0/24 via 10.5.2.0") {
		t.Errorf("after the subnet was lost:\n%s", got)
	}
	b.apply(kernelSet(b, vxlanPeer(2)))
	if got := kernelListing(); !strings.Contains(got, "10.5.1.0/32") {
		t.Errorf("after a new lease:\n%s", got)
	}
}

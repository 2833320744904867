package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

const hostGWDual = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"host-gw"}}`

func hostGWPeer(n int) lease.Record {
	r := vxlanPeer(n)
	r.BackendType, r.BackendData, r.BackendV6Data = typeHostGW, nil, nil
	return r
}

func TestHostGWBringsUpAndRepairs(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "route add default via 192.0.2.254 dev eth0")
	ip(t, "route add 10.5.2.0/24 via 192.0.2.99 dev eth0") // flannel's, with an old address
	ip(t, "route add 10.5.9.0/24 via 192.0.2.9 dev eth0")  // flannel's, stale
	// no subnet's length: somebody's own
	ip(t, "route add 10.5.8.0/26 via 192.0.2.8 dev eth0")
	ip(t, "route add 10.5.7.0/24 via 192.0.2.7 dev eth0 proto static")       // somebody's own
	ip(t, "-6 route add fd00:5:0:9::/64 via 2001:db8::9 dev eth0 proto 119") // ours, stale
	b := openKernelBackend(t, k, hostGWDual, nil)
	far := hostGWPeer(4)
	far.PublicIP = addr("198.51.100.4")
	b.apply(kernelSet(b, hostGWPeer(2), hostGWPeer(3), far))
	const want = `10.5.2.0/24 via 192.0.2.2 dev eth0
10.5.3.0/24 via 192.0.2.3 dev eth0
fd00:5:0:2::/64 via 2001:db8::2 dev eth0 metric 1024 pref medium
fd00:5:0:3::/64 via 2001:db8::3 dev eth0 metric 1024 pref medium
fd00:5:0:4::/64 via 2001:db8::4 dev eth0 metric 1024 pref medium
`
	if err := listed(want)(); err != nil {
		t.Fatal(err, b.Status().Skipped)
	}
	if got := ip(t, "route show"); strings.Contains(got, "10.5.9.0") || !strings.Contains(got, "10.5.8.0/26") ||
		!strings.Contains(got, "10.5.7.0/24") {
		t.Errorf("routes:\n%s", got)
	}
	st := b.Status()
	if !st.InPlace || st.Device() != "eth0" || !st.Up || st.MTU != 1500 || st.Peers != 3 ||
		len(st.Skipped) != 1 || !strings.Contains(st.Skipped[0].Reason, "192.0.2.254") {
		t.Errorf("status %+v", st)
	}
	b.start()
	for _, drift := range []string{
		"ip route del 10.5.2.0/24", "ip -6 route del fd00:5:0:3::/64",
		"ip route replace 10.5.2.0/24 via 192.0.2.55 dev eth0 proto 119",
		"ip route add 10.5.77.0/24 via 192.0.2.77 dev eth0 proto 119",
		"ip -6 route append fd00:5:0:2::/64 via 2001:db8::55 dev eth0 proto 119",
		"ip route replace 10.5.2.0/24 proto 119 nexthop via 192.0.2.55 dev eth0 nexthop via 192.0.2.56 dev eth0",
		"ip route add 10.5.88.0/24 proto 119 nexthop via 192.0.2.55 dev eth0 nexthop via 192.0.2.56 dev eth0",
		"ip -6 route add fd00:5:0:88::/64 proto 119 nexthop via 2001:db8::55 dev eth0 nexthop via 2001:db8::56 " +
			"dev eth0",
		"ip link set eth0 down && ip link set eth0 up && ip addr replace 2001:db8::1/64 dev eth0 nodad",
	} {
		if out, err := exec.Command("sh", "-c", drift).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", drift, err, out)
		}
		await.OK(t, drift, listed(want))
	}
	ip(t, "route add 198.51.100.0/24 dev eth0")
	await.OK(t, "the far peer's way is direct now", func() error {
		if got := kernelListing(); !strings.Contains(got, "198.51.100.4") {
			return errors.New(got)
		}
		return nil
	})
	b.stop()
	if !strings.Contains(kernelListing(), "10.5.2.0/24") {
		t.Errorf("a backend that ends leaves the kernel to forward:\n%s", kernelListing())
	}
}

func TestHostGWNeedsTheLinksOwnAddress(t *testing.T) {
	k := inNamespace(t)
	network, err := Parse([]byte(hostGWDual))
	if err != nil {
		t.Fatal(err)
	}
	u := underlay.Link{Name: "eth0", MTU: 1500, Addr4: addr("192.0.2.1"), Ext4: addr("203.0.113.1")}
	if _, err := NewNode(t.Context(), BackendConfig{Kernel: k, Network: network, Underlay: u}); err == nil ||
		!strings.Contains(err.Error(), "203.0.113.1") {
		t.Errorf("behind NAT: %v", err)
	}
}

// Whatever backend comes after another, nothing of the former stays.
func TestBackendsReplaceEachOther(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	ip(t, "link add flannel.77 type vxlan id 77 dev eth0 dstport 8472") // another network's
	ip(t, "addr add 10.77.1.0/32 dev flannel.77")
	config := func(backend string) string {
		return fmt.Sprintf(
			`{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":%s}`, backend)
	}
	for _, c := range []struct{ backend, links, routes string }{
		{`{"Type":"vxlan"}`, "flannel-v6.1 flannel.1", "10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink"},
		{`{"Type":"vxlan","VNI":5,"Port":4789}`, "flannel-v6.5 flannel.5",
			"10.5.2.0/24 via 10.5.2.0 dev flannel.5 onlink"},
		{`{"Type":"udp"}`, "flannel0", "10.5.0.0/16 dev flannel0 scope link"},
		{`{"Type":"host-gw"}`, "", "10.5.2.0/24 via 192.0.2.2 dev eth0"},
		{`{"Type":"vxlan"}`, "flannel-v6.1 flannel.1", "10.5.2.0/24 via 10.5.2.0 dev flannel.1 onlink"},
		{`{"Type":"alloc"}`, "", ""},
		{`{"Type":"udp"}`, "flannel0", "10.5.0.0/16 dev flannel0 scope link"},
		{`{"Type":"extension"}`, "", ""},
	} {
		b := openKernelBackend(t, k, config(c.backend), nil).Node
		network := b.cfg.Network
		peer := vxlanPeer(2)
		peer.BackendType = b.RecordType()
		for _, data := range []*json.RawMessage{&peer.BackendData, &peer.BackendV6Data} {
			*data = []byte(strings.Replace(string(*data), `"VNI":1,`, "", 1))
			if network.BackendType == typeExtension {
				*data = nil
			}
		}
		own := lease.Record{Subnets: vxlanPeer(1).Subnets}
		set := lease.Set{Config: network.NetworkConfig, Own: own, Peers: []lease.Record{peer}}
		if err := b.Apply(t.Context(), set); err != nil {
			t.Fatalf("%s: %v", c.backend, err)
		}
		st := b.Status()
		for range 2 {
			if _, err := RemoveLeftovers(k, network.NetworkConfig, nil, st.Devices); err != nil {
				t.Errorf("%s: %v", c.backend, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: %v", c.backend, err)
		}
		var links []string
		ds, _ := k.Devices()
		for _, d := range ds {
			if strings.HasPrefix(d.Name, "flannel") && d.Name != "flannel.77" {
				links = append(links, d.Name)
			}
		}
		slices.Sort(links)
		// Nobody holds the TUN any more, which the kernel notices in its own time.
		if got := strings.Join(strings.Fields(strings.ReplaceAll(ip(t, "-4 route show proto 119"), "linkdown", "")),
			" "); strings.Join(links, " ") != c.links || got != c.routes {
			t.Errorf("%s: links %q, routes %q", c.backend, links, got)
		}
		six := ip(t, "-6 route show proto 119")
		if strings.Count(six, "\n") != strings.Count(c.routes, "dev") {
			t.Errorf("%s: IPv6 routes %q", c.backend, six)
		}
	}
	if _, err := k.Device("flannel.77"); err != nil {
		t.Errorf("another network's device: %v", err)
	}
}

// TestRoutesHaveThePeersMTU: IPv6 heeds it for packets that it forwards only if it is locked.
func TestRoutesHaveThePeersMTU(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	b := openKernelBackend(t, k, hostGWDual, nil)
	defer b.Close()
	small := hostGWPeer(2)
	small.Weft = &lease.Weft{MTU: 1300}
	b.apply(kernelSet(b, small))
	four, six := ip(t, "-4 route show 10.5.2.0/24"), ip(t, "-6 route show fd00:5:0:2::/64")
	if !strings.Contains(four, "mtu 1300") || !strings.Contains(six, "mtu lock 1300") {
		t.Errorf("routes\n%s%s", four, six)
	}
}

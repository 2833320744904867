package kube

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"weft/test/lab"
)

// The condition NetworkUnavailable says that weft is up, as flannel's does. If packets cannot be sent for a
// long time it says so, with the reason, so that the scheduler keeps pods away. When packets can be sent
// again, it says that too.
func TestNetworkUnavailable(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Controllers: []string{"node-lifecycle-controller"}})
	n := c.AddNode(t, "a", NodeOptions{})
	networkIs(t, n, corev1.ConditionFalse, "FlannelIsUp", "Flannel")
	tainted(t, n, false)
	anotherWay(t, c, n)
	if _, err := n.Command(t.Context(), "ip", "link", "set", "eth0", "down"); err != nil {
		t.Fatal(err)
	}
	t.Log(n.NotReadyFor(t, "eth0"))
	networkIs(t, n, corev1.ConditionTrue, "FlannelIsDown", "eth0")
	tainted(t, n, true)
	if _, err := n.Command(t.Context(), "ip", "link", "set", "eth0", "up"); err != nil {
		t.Fatal(err)
	}
	networkIs(t, n, corev1.ConditionFalse, "FlannelIsUp", "Flannel")
	tainted(t, n, false)
}

// networkIs waits until the condition is as wanted. It waits longer than Patience, since weftd itself waits
// for a minute before it complains.
func networkIs(t *testing.T, n *Node, status corev1.ConditionStatus, reason, message string) {
	t.Helper()
	UntilWithin(t, 3*Patience, fmt.Sprintf("NetworkUnavailable is %s", status), func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		for _, have := range obj.Status.Conditions {
			if have.Type == corev1.NodeNetworkUnavailable && have.Status == status && have.Reason == reason &&
				strings.Contains(have.Message, message) {
				t.Logf("%s: %s: %s", have.Status, have.Reason, have.Message)
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", obj.Status.Conditions)
	})
}

// tainted waits until the controller has set or removed the taint that follows from the condition.
func tainted(t *testing.T, n *Node, want bool) {
	t.Helper()
	Until(t, fmt.Sprintf("taint: %v", want), func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		have := false
		for _, taint := range obj.Spec.Taints {
			have = have || taint.Key == corev1.TaintNodeNetworkUnavailable
		}
		if have != want {
			return fmt.Errorf("taints %v", obj.Spec.Taints)
		}
		return nil
	})
}

// anotherWay lays a cable of its own from n to the API server, so that n can tell what is wrong with eth0.
func anotherWay(t *testing.T, c *Cluster, n *Node) {
	t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "mgmt0"}, PeerName: "mgmt0",
		PeerNamespace: netlink.NsFd(c.Control.NS.FD())}
	if err := n.NS.Netlink().LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	for i, h := range []*lab.Host{c.Control.Host, n.Host} {
		nl := h.NS.Netlink()
		l, err := nl.LinkByName("mgmt0")
		if err != nil {
			t.Fatal(err)
		}
		if err := nl.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		own := netip.AddrFrom4([4]byte{198, 19, 255, byte(1 + i)})
		if err := nl.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(own, 30))}); err != nil {
			t.Fatal(err)
		}
		to, via := c.Control.Underlay4, netip.AddrFrom4([4]byte{198, 19, 255, 1})
		if h == c.Control.Host {
			to, via = n.Underlay4, netip.AddrFrom4([4]byte{198, 19, 255, 2})
		}
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(netip.PrefixFrom(to, 32)),
			Gw: net.IP(via.AsSlice())}
		if h == n.Host {
			route.Src = own.AsSlice() // eth0's own address goes when eth0 does
		}
		if err := nl.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

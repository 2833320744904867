package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/test/traffic"
)

// kernelVXLAN returns the configuration of the tests that look at the kernel's tables.
func kernelVXLAN() string { return DualStack(`{"Type":"vxlan","Userspace":"never"}`) }

// AnnotationPrefix is flannel's own, and weft's default.
const AnnotationPrefix = "flannel.alpha.coreos.com/"

// FlannelAnnotations are those of a vxlan node at address with these hardware addresses.
func FlannelAnnotations(v4, v6 netip.Addr, mac4, mac6 string) map[string]string {
	data := func(mac string) string { return fmt.Sprintf(`{"VNI":1,"VtepMAC":%q}`, mac) }
	out := map[string]string{
		AnnotationPrefix + "kube-subnet-manager": "true",
		AnnotationPrefix + "backend-type":        "vxlan",
		AnnotationPrefix + "public-ip":           v4.String(),
		AnnotationPrefix + "backend-data":        data(mac4),
	}
	if v6.IsValid() {
		out[AnnotationPrefix+"public-ipv6"], out[AnnotationPrefix+"backend-v6-data"] = v6.String(), data(mac6)
	}
	return out
}

// paperNode makes a node that is only a Node object, with podCIDRs and flannel's annotations, at an address
// where no host is.
func paperNode(c *Cluster, t *testing.T, name string, number byte) (v4, v6 netip.Prefix) {
	t.Helper()
	v4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, number, 0}), 24)
	v6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x42, 7: number}), 64)
	at4, at6 := paperAddress(number)
	c.CreateNode(t, name, at4, NodeOptions{
		PodCIDRs: []string{v4.String(), v6.String()},
		Annotations: FlannelAnnotations(at4, at6, fmt.Sprintf("02:00:00:00:04:%02x", number),
			fmt.Sprintf("02:00:00:00:06:%02x", number)),
	})
	return v4, v6
}

func paperAddress(number byte) (v4, v6 netip.Addr) {
	return netip.AddrFrom4([4]byte{198, 18, 9, number}),
		netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x18, 14: 9, 15: number})
}

// kernelSays waits until a node's kernel, when asked about the peers, says every text of want and none of
// not.
func kernelSays(t *testing.T, n *Node, want, not []string) {
	t.Helper()
	Until(t, n.Object+"'s kernel", func(ctx context.Context) error {
		all := n.kernel(ctx)
		for _, w := range want {
			if !strings.Contains(all, w) {
				return fmt.Errorf("no %q in\n%s", w, all)
			}
		}
		for _, w := range not {
			if strings.Contains(all, w) {
				return fmt.Errorf("still %q in\n%s", w, all)
			}
		}
		return nil
	})
}

// Nodes join and leave a cluster that runs. A node whose object comes back with other podCIDRs uses those.
func TestNodesJoinAndLeave(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	o := NodeOptions{NetworkConfig: kernelVXLAN()}
	a, b := c.AddNode(t, "a", o), c.AddNode(t, "b", o)
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4, 6)
	flow := traffic.Start(t, pods[0].Endpoint(4), pods[1].Endpoint(4), 500)

	third := c.AddNode(t, "c", o)
	all := append(pods[:2:2], third.AddPod(t))
	AllReach(t, all, 4, 6)
	subnets := map[*Node][]netip.Prefix{}
	for _, n := range c.Nodes() {
		subnets[n] = n.Subnets(t)
	}
	before := subnets[third]
	third.Delete(t)
	for _, n := range []*Node{a, b} {
		other := subnets[b]
		if n == b {
			other = subnets[a]
		}
		n.KnowsOnly(t, other...)
		kernelSays(t, n, nil, []string{before[0].String(), before[1].String()})
	}
	// The weftd whose Node object is gone says so, and serves its old subnets until there is an object again.
	third.NotReadyFor(t, `"c"`)
	c.Register(t, third, NodeOptions{PodCIDRs: []string{"10.244.210.0/24", "fd42:0:0:d2::/64"}})
	third.StatusIs(t, "takes its new podCIDRs", func(s Status) error {
		if s.Lease == nil || s.Lease.Subnet.String() != "10.244.210.0/24" ||
			s.Lease.IPv6Subnet.String() != "fd42:0:0:d2::/64" || !s.Ready {
			return fmt.Errorf("ready %v %v, lease %+v", s.Ready, s.NotReady, s.Lease)
		}
		return nil
	})
	a.KnowsOnly(t, append(subnets[b], third.Subnets(t)...)...)
	flow.Lossless()
}

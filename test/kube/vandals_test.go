package kube

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"weft/test/traffic"
)

// vandalism is what somebody has written into another node's object.
type vandalism struct {
	name        string
	podCIDRs    []string
	annotations map[string]string // in place of those of a node of flannel's; their names have no prefix here
}

func vandalisms(own, others string) []vandalism {
	huge := strings.Repeat("A", 100<<10) // an object's annotations may have 256 KiB
	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	return []vandalism{
		{"no address", nil, one("public-ip", "")},
		{"an address of letters", nil, one("public-ip", "10.244.0.1; rm -rf /")},
		{"an endless address", nil, one("public-ip", huge)},
		{"nobody's address", nil, one("public-ip", "0.0.0.0")},
		{"loopback", nil, one("public-ip", "127.0.0.1")},
		{"multicast", nil, one("public-ip", "224.0.0.1")},
		{"an address of the other family", nil, one("public-ip", "fd18::9:9")},
		{"backend data of letters", nil, one("backend-data", "VtepMAC")},
		{"backend data of another type", nil, one("backend-data", `["VNI",1]`)},
		{"a hardware address of letters", nil, one("backend-data", `{"VNI":1,"VtepMAC":"flannel"}`)},
		{"a group's hardware address", nil, one("backend-data", `{"VNI":1,"VtepMAC":"ff:ff:ff:ff:ff:ff"}`)},
		{"deep backend data", nil, one("backend-data", strings.Repeat("[", 50<<10))},
		{"endless backend data", nil, one("backend-data", `{"VNI":1,"VtepMAC":"`+huge+`"}`)},
		{"another backend", nil, one("backend-type", "extension")},
		{"our podCIDR", []string{own}, nil},
		{"another node's podCIDR", []string{others}, nil},
		{"a podCIDR that contains ours", []string{"10.244.0.0/17"}, nil},
		{"every address", []string{"0.0.0.0/0"}, nil},
		{"a podCIDR outside the network", []string{"192.0.2.0/24"}, nil},
	}
}

// vandal returns a name that sorts before those of the other nodes, so that their order is not what saves
// them.
func vandal(i int) string { return fmt.Sprintf("0-vandal-%d", i) }

// Whatever is written into a node's annotations harms at most that node: no packet between the others is
// lost, and nobody's subnet is sent elsewhere. A weftd repairs what is written into its own annotations.
func TestAnnotationsVandalised(t *testing.T) {
	c := Start(t, Options{})
	o := NodeOptions{NetworkConfig: `{"Network":"` + Network4 +
		`","Backend":{"Type":"vxlan","Userspace":"never"}}`}
	a, b := c.AddNode(t, "a", o), c.AddNode(t, "b", o)
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4)
	flow := traffic.Start(t, pods[0].Endpoint(4), pods[1].Endpoint(4), 500)
	own, others := a.Subnets(t)[0], b.Subnets(t)[0]
	at := netip.MustParseAddr("198.18.9.9")
	for i, v := range vandalisms(own.String(), others.String()) {
		annotations := FlannelAnnotations(at, netip.Addr{}, "02:00:00:00:04:01", "")
		for key, value := range v.annotations {
			annotations[AnnotationPrefix+key] = value
		}
		cidrs := v.podCIDRs
		if len(cidrs) == 0 {
			cidrs = []string{fmt.Sprintf("10.244.%d.0/24", 100+i)}
		}
		c.CreateNode(t, vandal(i), at, NodeOptions{PodCIDRs: cidrs, Annotations: annotations})
	}
	honest, _ := paperNode(c, t, "zz-honest", 250) // when this one is known, all of them have been looked at
	routesOnly(t, a, others, honest)
	routesOnly(t, b, own, honest)
	kernelSays(t, a, nil, []string{"198.18.9.9 ", "192.0.2.0"})
	s := a.StatusIs(t, "says what it does not use", func(s Status) error {
		if s.Rejected == 0 || !s.Ready {
			return fmt.Errorf("rejected %d, ready %v %v", s.Rejected, s.Ready, s.NotReady)
		}
		return nil
	})
	t.Logf("%d records rejected", s.Rejected)
	AllReach(t, pods, 4)
	for i, v := range vandalisms(own.String(), others.String()) {
		if len(v.podCIDRs) > 0 {
			c.DeleteNode(t, vandal(i))
		}
	}
	ownRepaired(t, c, a)
	routesOnly(t, b, own, honest)
	AllReach(t, pods, 4)
	flow.Lossless()
}

// ownRepaired gives n's own annotations another node's data, and waits until n has repaired them.
func ownRepaired(t *testing.T, c *Cluster, n *Node) {
	t.Helper()
	obj, err := n.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(obj.Annotations)
	c.Annotate(t, n.Object, map[string]any{
		AnnotationPrefix + "kube-subnet-manager": "false", AnnotationPrefix + "public-ip": "198.18.0.3",
		AnnotationPrefix + "backend-type": "host-gw", AnnotationPrefix + "backend-data": "null",
	})
	Until(t, "all are put right", func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err == nil && !maps.Equal(obj.Annotations, before) {
			err = fmt.Errorf("%v, want %v", obj.Annotations, before)
		}
		return err
	})
}

// routesOnly waits until the kernel sends exactly subnets to other nodes.
func routesOnly(t *testing.T, n *Node, subnets ...netip.Prefix) {
	t.Helper()
	want := fmt.Sprint(sorted(subnets))
	Until(t, n.Object+"'s routes", func(ctx context.Context) error {
		out, err := n.Command(ctx, "ip", "-4", "route", "show", "dev", "flannel.1")
		if err != nil {
			return err
		}
		var got []netip.Prefix
		for line := range strings.Lines(string(out)) {
			p, err := netip.ParsePrefix(strings.Fields(line)[0])
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			got = append(got, p)
		}
		if fmt.Sprint(sorted(got)) != want {
			return fmt.Errorf("routes to %v, want %s", got, want)
		}
		return nil
	})
}

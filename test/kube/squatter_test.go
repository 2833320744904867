package kube

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// A Node object that claims another node's podCIDR does not get that node's packets, neither while the other's
// annotations are garbage or gone, nor once its weftd has put them right.
func TestSquatter(t *testing.T) {
	c := Start(t, Options{})
	a, b := c.AddNode(t, "m", NodeOptions{NetworkConfig: kernelVXLAN()}), c.AddNode(t, "b", NodeOptions{NetworkConfig: kernelVXLAN()})
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4, 6)
	own := a.Subnets(t)
	at := netip.MustParseAddr("198.18.9.9")
	for name, cidrs := range map[string][]string{"0": {own[0].String()}, "z": {own[0].String(), own[1].String()}, "1": {own[1].String()}, "2": {"10.244.0.0/17"}} {
		c.CreateNode(t, name, at, NodeOptions{PodCIDRs: cidrs, Annotations: FlannelAnnotations(at, netip.MustParseAddr("fd18::9:9"), "02:00:00:00:04:01", "02:00:00:00:06:01")})
	}
	// The squatters have to be refused before the other's annotations change: a Node that comes after they are gone may
	// have the podCIDR.
	_, known := paperNode(c, t, "after", 249)
	kernelSays(t, b, []string{known.String()}, []string{"198.18.9.9 ", "fd18::9:9 "})
	for what, values := range map[string]map[string]any{
		"garbage":   {AnnotationPrefix + "public-ip": "vandal", AnnotationPrefix + "backend-data": "vandal"},
		"unmanaged": {AnnotationPrefix + "kube-subnet-manager": nil},
		"nothing":   {AnnotationPrefix + "public-ip": nil, AnnotationPrefix + "public-ipv6": nil},
	} {
		t.Run(what, func(t *testing.T) {
			if err := a.Daemon.Signal(unix.SIGSTOP); err != nil { // so that it does not repair them at once
				t.Fatal(err)
			}
			c.Annotate(t, "m", values)
			_, seen := paperNode(c, t, "seen", 250) // when b knows this node, it has seen all that came before
			kernelSays(t, b, []string{seen.String()}, []string{"198.18.9.9 ", "fd18::9:9 "})
			if err := a.Daemon.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			AllReach(t, pods, 4, 6)
			kernelSays(t, b, nil, []string{"198.18.9.9 ", "fd18::9:9 "})
			c.DeleteNode(t, "seen")
		})
	}
}

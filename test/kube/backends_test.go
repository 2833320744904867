package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods of two nodes reach each other in each family of every backend, and the Node objects have the
// annotations that flannel would write.
func TestBackends(t *testing.T) {
	c := Start(t, Options{})
	for _, b := range []struct {
		name, config string
		families     []int
		kind, path   string // in the status; path "" stands for any path in user space
		mtu          int
		annotations  []string // that have a value, besides the marker and the type
	}{
		{"udp", UDP, []int{4}, "udp", "", 1472, []string{"public-ip"}},
		{"vxlan by the kernel in both families", DualStack(`{"Type":"vxlan","Userspace":"never"}`), []int{4, 6},
			"vxlan", "kernel", 1430,
			[]string{"public-ip", "backend-data", "public-ipv6", "backend-v6-data"}},
		{"wireguard in user space", DualStack(`{"Type":"wireguard","Userspace":"always"}`), []int{4, 6},
			"wireguard", "userspace", 1420,
			[]string{"public-ip", "backend-data", "public-ipv6", "backend-v6-data"}},
		{"host-gw", DualStack(`{"Type":"host-gw"}`), []int{4, 6}, "host-gw", "kernel", 1500,
			[]string{"public-ip", "public-ipv6"}},
	} {
		t.Run(b.name, func(t *testing.T) {
			var pods []*Pod
			for _, name := range []string{"a", "b"} {
				n := c.AddNode(t, name, NodeOptions{NetworkConfig: b.config})
				t.Cleanup(func() { n.leave(t) })
				pods = append(pods, n.AddPod(t))
				s := n.StatusIs(t, "backend in place", func(s Status) error {
					if s.Backend.Type != b.kind || b.path != "" && s.Backend.Path != b.path || s.Backend.MTU != b.mtu ||
						!s.Backend.InPlace {
						return fmt.Errorf("backend %+v, want %s, path %q, MTU %d", s.Backend, b.kind, b.path, b.mtu)
					}
					return nil
				})
				t.Logf("%s: %v by path %s", name, n.Subnets(t), s.Backend.Path)
				n.publishes(t, b.kind, b.annotations)
			}
			AllReach(t, pods, b.families...)
			for _, family := range b.families {
				Transfer(t, pods[0].Endpoint(family), pods[1].Endpoint(family))
				Transfer(t, pods[1].Endpoint(family), pods[0].Endpoint(family))
			}
			pods[0].Remove(t)
			again := pods[0].Node.AddPod(t)
			AllReach(t, []*Pod{again, pods[1]}, b.families...)
		})
	}
}

// leave takes a node out of the cluster: it kills its weftd and deletes its Node object.
func (n *Node) leave(t *testing.T) {
	if err := n.Daemon.Kill(); err != nil {
		t.Error(err)
	}
	ctx := context.Background() // the test's own has ended
	if err := n.cluster.Admin.CoreV1().Nodes().Delete(ctx, n.Object, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// publishes waits until the annotations are those that flannel would write.
func (n *Node) publishes(t *testing.T, kind string, with []string) {
	t.Helper()
	Until(t, n.Object+"'s annotations", func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		if kind == "udp" {
			kind = "" // flannel's udp backend has no type
		}
		if a := flannelAnnotations(obj); a["kube-subnet-manager"] != "true" || a["backend-type"] != kind {
			return fmt.Errorf("annotations %v, want the marker and type %q", a, kind)
		}
		for _, name := range with {
			value := flannelAnnotations(obj)[name]
			switch {
			case name == "public-ip" && value != n.Underlay4.String(), name == "public-ipv6" &&
				parse(value) != n.Underlay6,
				strings.HasSuffix(name, "data") && !strings.HasPrefix(value,
					map[string]string{"vxlan": ` {"VNI":1,"VtepMAC":"`, "wireguard": ` {"PublicKey":"`}[kind]):
				return fmt.Errorf("annotation %s is %q", name, value)
			}
		}
		return nil
	})
}

func parse(text string) netip.Addr {
	a, _ := netip.ParseAddr(text) // the zero Addr is nobody's
	return a
}

// flannelAnnotations returns the annotations with flannel's prefix, by their names without it.
func flannelAnnotations(obj *corev1.Node) map[string]string {
	out := map[string]string{}
	for key, value := range obj.Annotations {
		if name, ok := strings.CutPrefix(key, "flannel.alpha.coreos.com/"); ok {
			out[name] = value
		}
	}
	return out
}

package kube

import (
	"context"
	"fmt"
	"testing"

	"weft/test/lab/probe"
)

// Nodes of flannel's and ours share a cluster: flannel's learn of ours from the annotations of their Node
// objects alone, and ours of flannel's, in both families, whether the kernel carries the packets or weft.
func TestFlannelNodesBeside(t *testing.T) {
	c := Start(t, Options{})
	f := c.AddFlannelNode(t, "flannels", 77)
	ends := map[int][]probe.Endpoint{4: {f.Endpoint(4)}, 6: {f.Endpoint(6)}}
	for name, userspace := range map[string]string{"kernels": "never", "wefts": "always"} {
		n := c.AddNode(t, name, NodeOptions{NetworkConfig: DualStack(`{"Type":"vxlan","Userspace":"` +
			userspace + `"}`)})
		p := n.AddPod(t)
		Until(t, "flannel's node learns of "+name, func(ctx context.Context) error {
			obj, err := n.Get(ctx)
			if err != nil {
				return err
			}
			return f.Learn(obj)
		})
		for family := range ends {
			ends[family] = append(ends[family], p.Endpoint(family))
		}
		n.Peer(t, f.V4, func(p Peer) error {
			if p.Weft || p.Address != f.Underlay4 {
				return fmt.Errorf("%+v", p)
			}
			return nil
		})
	}
	for _, all := range ends {
		for _, a := range all {
			for _, b := range all {
				if a.Name != b.Name {
					Reach(t, a, b)
				}
			}
		}
		for _, ours := range all[1:] {
			Transfer(t, ours, all[0])
			Transfer(t, all[0], ours)
		}
	}
}

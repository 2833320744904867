package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"weft/test/netns"
	"weft/test/traffic"
)

// AddFlannel makes a host with its Node object, starts a real flanneld there, and waits until pods can be
// added. Of o it uses the network configuration.
func (c *Cluster) AddFlannel(t *testing.T, name string, o NodeOptions) *Node {
	t.Helper()
	n := c.PrepareNode(t, name, o)
	// A kubelet writes this one; flanneld ends if there is no annotation at all.
	o.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	c.Register(t, n, o)
	Until(t, "the controller gives "+name+" a podCIDR", func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err == nil && obj.Spec.PodCIDR == "" {
			err = errors.New("it has none") // flanneld would end
		}
		return err
	})
	n.startFlannel(t)
	return n
}

// startFlannel starts flanneld in place of n's weftd, which does not run.
func (n *Node) startFlannel(t *testing.T) {
	t.Helper()
	path := os.Getenv("WEFT_FLANNELD")
	if path == "" {
		netns.Skip(t, "WEFT_FLANNELD is not set: make test-kube builds flanneld and sets it")
	}
	_ = exec.Command("modprobe", "br_netfilter").Run() // flanneld does not start without it
	if err := os.RemoveAll(n.SubnetFile); err != nil {
		t.Fatal(err)
	}
	n.Daemon.SetPath(path)
	n.Daemon.SetArgs("--kube-subnet-mgr", "--kubeconfig-file="+n.kubeconfig(),
		"--net-config-path="+n.NetConfigFile, "--iface=eth0", "--ip-masq", "--subnet-file="+n.SubnetFile)
	if err := n.Daemon.Start(); err != nil {
		t.Fatal(err)
	}
	Until(t, n.Object+" runs flannel", func(context.Context) error {
		_, err := os.Stat(n.SubnetFile)
		return err
	})
}

func (n *Node) subnetFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(n.SubnetFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// takes waits until n takes other for a weft, or for a flannel.
func (n *Node) takes(t *testing.T, other *Pod, weft bool) {
	t.Helper()
	subnet := netip.PrefixFrom(other.V4, 24).Masked()
	n.Peer(t, subnet, func(p Peer) error {
		if p.Weft != weft || !weft && len(p.Recv) > 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
}

// A node runs flannel beside nodes of weft's, then weft, then flannel again, as docs/flannel.md says. Its
// pods reach those of the others all the time, and where that page promises it no packet is lost. At the end
// a node joins that weft has never known.
func TestFromFlannelAndBack(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	for _, way := range []struct {
		name, config string
		families     []int
		// Where weft itself carries the packets, its device has to go before flannel's comes.
		device bool
	}{
		{"vxlan", strings.Replace(kernelVXLAN(), "{", `{"EnableNFTables":true,`, 1), []int{4, 6}, false},
		{"host-gw", DualStack(`{"Type":"host-gw"}`), []int{4, 6}, false},
		{"udp", UDP, []int{4}, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			o := NodeOptions{NetworkConfig: way.config, Args: []string{"--ip-masq"}}
			a, b := c.AddNode(t, way.name+"-a", o), c.AddFlannel(t, way.name+"-b", o)
			nodes := []*Node{a, b}
			if way.name == "vxlan" {
				inUserSpace := NodeOptions{NetworkConfig: DualStack(`{"Type":"vxlan","Userspace":"always"}`)}
				nodes = append(nodes, c.AddNode(t, way.name+"-u", inUserSpace))
			}
			var pods []*Pod
			for _, n := range nodes {
				t.Cleanup(func() { n.leave(t) })
				pods = append(pods, n.AddPod(t))
			}
			talk := func(pods []*Pod) {
				t.Helper()
				AllReach(t, pods, way.families...)
				for _, family := range way.families {
					for _, p := range pods[1:] {
						Transfer(t, pods[0].Endpoint(family), p.Endpoint(family))
						Transfer(t, p.Endpoint(family), pods[0].Endpoint(family))
					}
				}
			}
			a.takes(t, pods[1], false)
			talk(pods)
			flannels := b.subnetFile(t)
			if way.name == "vxlan" { // flannel leaves the length of the underlay's IPv6 header out
				flannels = strings.Replace(flannels, "MTU=1450", "MTU=1430", 1)
			}

			var flows []*traffic.Flow
			for _, family := range way.families {
				if !way.device {
					flows = append(flows, traffic.Start(t, pods[0].Endpoint(family), pods[1].Endpoint(family), 500),
						traffic.Start(t, pods[1].Endpoint(family), pods[0].Endpoint(family), 500))
				}
			}
			if err := b.Daemon.Kill(); err != nil { // flanneld does not always end when it is asked to
				t.Fatal(err)
			}
			b.weft(o)
			b.Up(t)
			a.takes(t, pods[1], true)
			talk(pods)
			if ours := b.subnetFile(t); ours != flannels {
				t.Errorf("subnet.env is\n%s\nwith flannel\n%s", ours, flannels)
			}

			if err := b.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if way.device {
				b.cleanup(t)
			}
			b.startFlannel(t)
			a.takes(t, pods[1], false)
			if obj, err := b.Get(t.Context()); err != nil || flannelAnnotations(obj)["weft"] == "" {
				t.Errorf("flannel removed weft's annotation: %v", err)
			}
			talk(pods)
			late := c.AddFlannel(t, way.name+"-late", o)
			t.Cleanup(func() { late.leave(t) })
			pods = append(pods, late.AddPod(t))
			if way.name == "vxlan" { // weft's rules admit the peers that it knew
				Unreached(t, pods[len(pods)-1].Endpoint(4), pods[1].Endpoint(4))
			}
			said := b.cleanup(t, "--rules", "--wait", "--kubeconfig-file="+b.kubeconfig(), "--node-name="+b.Object)
			t.Log(said)
			if obj, err := b.Get(t.Context()); err != nil || flannelAnnotations(obj)["weft"] != "" ||
				flannelAnnotations(obj)["public-ip"] == "" || !strings.Contains(said, "annotation") {
				t.Errorf("annotations %v, %v", flannelAnnotations(obj), err)
			}
			talk(pods)
			for _, f := range flows {
				f.Lossless()
			}
		})
	}
}

// cleanup runs weft cleanup on n, which has no weftd any more.
func (n *Node) cleanup(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Command(t.Context(), n.cluster.programs.weft,
		append([]string{"cleanup", "--control-socket=" + n.ControlSocket}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

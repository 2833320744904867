package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"weft/test/lab"
)

// Node is a host of the cluster, its Node object and its weftd.
type Node struct {
	*lab.Node
	// Object is the name of the Node object.
	Object string
	// Direct attaches the pods that are added from now on to weftd itself, without a bridge.
	Direct bool

	cluster *Cluster
	pods    []*Pod
}

// NodeOptions describe a node. The zero value describes one with the udp backend.
type NodeOptions struct {
	// NetworkConfig is flannel's JSON; Network4 and the udp backend by default.
	NetworkConfig string
	// Args are appended to weftd's.
	Args []string
	// Annotations are those of the Node object before weftd starts.
	Annotations map[string]string
	// PodCIDRs are those of the Node object; by default the controller assigns them.
	PodCIDRs []string
}

// UDP is the default network configuration.
const UDP = `{"Network":"` + Network4 + `","Backend":{"Type":"udp"}}`

// DualStack returns a network configuration, flannel's JSON, with both families and the given backend.
func DualStack(backend string) string {
	return `{"Network":"` + Network4 + `","EnableIPv6":true,"IPv6Network":"` + Network6 + `","Backend":` +
		backend + `}`
}

// Host puts a machine on the wire without a Node object and without a weftd.
func (c *Cluster) Host(t *testing.T) *lab.Node {
	t.Helper()
	h, err := c.lab.AddNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// AddNode makes a host with its Node object, as a kubelet makes it, starts weftd, and returns when that is
// ready.
func (c *Cluster) AddNode(t *testing.T, name string, o NodeOptions) *Node {
	t.Helper()
	n := c.PrepareNode(t, name, o)
	c.Register(t, n, o)
	n.Up(t)
	return n
}

// PrepareNode puts a host on the wire. It neither starts the host's weftd nor makes its Node object.
func (c *Cluster) PrepareNode(t *testing.T, name string, o NodeOptions) *Node {
	t.Helper()
	n := &Node{Node: c.Host(t), Object: name, cluster: c}
	if o.NetworkConfig == "" {
		o.NetworkConfig = UDP
	}
	if err := c.WriteKubeconfig(t.Context(), n.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.NetConfigFile, []byte(o.NetworkConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := n.ownCNIState(); err != nil {
		t.Fatal(err)
	}
	n.weft(o)
	n.Daemon.SetEnv("NODE_NAME=" + name)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
	return n
}

// weft makes n's daemon weftd, from its next start on.
func (n *Node) weft(o NodeOptions) {
	n.Daemon.SetPath(n.cluster.programs.weftd)
	n.Daemon.SetArgs(append([]string{
		"--kube-subnet-mgr", "--kubeconfig-file=" + n.kubeconfig(), "--net-config-path=" + n.NetConfigFile,
		"--iface=eth0", "--subnet-file=" + n.SubnetFile, "--cache-dir=" + n.CacheDir, "--control-socket=" +
			n.ControlSocket,
		"--healthz-ip=127.0.0.1", fmt.Sprintf("--healthz-port=%d", lab.HealthPort), "--log-format=text",
	}, o.Args...)...)
}

func (n *Node) kubeconfig() string { return filepath.Join(n.Dir, "kubeconfig") }

// Register makes n's Node object. If o has no podCIDRs, the controller assigns them.
func (c *Cluster) Register(t *testing.T, n *Node, o NodeOptions) {
	t.Helper()
	c.CreateNode(t, n.Object, n.Underlay4, o)
}

// CreateNode makes a Node object.
func (c *Cluster) CreateNode(t *testing.T, name string, address netip.Addr, o NodeOptions) {
	t.Helper()
	obj := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: o.Annotations},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address.String()}}},
	}
	if len(o.PodCIDRs) > 0 {
		obj.Spec.PodCIDR, obj.Spec.PodCIDRs = o.PodCIDRs[0], o.PodCIDRs
	}
	if _, err := c.Admin.CoreV1().Nodes().Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Up starts weftd and waits until it is ready.
func (n *Node) Up(t *testing.T) {
	t.Helper()
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
}

// Get reads the Node object.
func (n *Node) Get(ctx context.Context) (*corev1.Node, error) {
	return n.cluster.Admin.CoreV1().Nodes().Get(ctx, n.Object, metav1.GetOptions{})
}

// Delete removes the Node object.
func (n *Node) Delete(t *testing.T) {
	t.Helper()
	n.cluster.DeleteNode(t, n.Object)
}

// DeleteNode removes a Node object.
func (c *Cluster) DeleteNode(t *testing.T, name string) {
	t.Helper()
	if err := c.Admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Annotate sets annotations of the Node object. A nil value removes its annotation.
func (c *Cluster) Annotate(t *testing.T, node string, values map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ownCNIState gives the node's mount namespace a /var/lib/cni of its own, since the plugins keep addresses
// and containers there, and every real machine has its own.
func (n *Node) ownCNIState() error {
	const state = "/var/lib/cni"
	own := filepath.Join(n.Dir, "cni")
	for _, dir := range []string{state, own} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return n.Do(func() error {
		if err := unix.Mount(own, state, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: bind %s to %s: %w", n.Name, own, state, err)
		}
		return nil
	})
}

// kernel returns what n's kernel knows of the peers, as the commands ip and bridge print it.
func (n *Node) kernel(ctx context.Context) string {
	var all strings.Builder
	for _, args := range [][]string{{"ip", "-4", "route"}, {"ip", "-6", "route"}, {"ip", "neigh"},
		{"bridge", "fdb"}} {
		out, err := n.Command(ctx, args[0], args[1:]...)
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "33:33:") && !strings.HasPrefix(line, "01:00:5e:") { // multicast
				all.WriteString(line)
			}
		}
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

// Status is the part of weftd's status at which the scenarios look.
type Status struct {
	NodeID   string
	Ready    bool
	NotReady []string
	Notes    []string
	Lease    *struct {
		Subnet, IPv6Subnet netip.Prefix
		Held               bool
		Detail             string
	}
	Backend struct {
		Type, Path, Device string
		MTU                int
		InPlace            bool
		Notes              []string
		Error              string
	}
	Store struct {
		Kind, Error string
		Connected   bool
		Refuses     bool
		LastSeen    time.Time
	}
	Cache struct{ Used bool }
	Alarm string
	Peers int
	// Rejected is the number of records that cannot be used.
	Rejected int
}

// Peer is the part of one of weftd's peers at which the scenarios look.
type Peer struct {
	Name    string
	Subnets []netip.Prefix
	Address netip.Addr
	Weft    bool
	Recv    []string
	Path    string
	Ways    []struct {
		Subnet      netip.Prefix
		Way, Reason string
	}
}

// Status asks weftd for its status at its control socket.
func (n *Node) Status(ctx context.Context) (s Status, err error) {
	return s, lab.Ask(ctx, n.ControlSocket, "status", &s)
}

// Peers returns those that weftd knows now.
func (n *Node) Peers(ctx context.Context) ([]Peer, error) {
	var got struct{ Peers []Peer }
	return got.Peers, lab.Ask(ctx, n.ControlSocket, "peers", &got)
}

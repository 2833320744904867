package lab

import (
	"context"
	"crypto/ecdh"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"weft/encap"
	"weft/lease/subnetenv"
)

const (
	controlSocket = "weftd.sock"
)

// Node is a host of the cluster: an underlay address, a weftd, a bridge with pods.
type Node struct {
	*Host
	// Index is from 1; the node's name is node1.
	Index int
	// Place is the host that the node's TUN and the bridge of its pods are in: the node itself, or with
	// Spec.Rootless a namespace of its user's.
	Place *Host
	// Underlay4 and Underlay6 are its addresses on the wire.
	Underlay4, Underlay6 netip.Addr
	// Daemon is the node's weftd, or its wireguard-go; with another driver it is never started. Node's own
	// Start and Restart wait until weftd is ready, and those of Daemon only start the process.
	Daemon *Daemon
	// Dir is the folder of the node's files. The others are paths in it.
	Dir, ControlSocket, CacheDir, SubnetFile, NetConfigFile string
	// Net is what the pods were given; it is zero until the node is ready for the first time.
	Net PodNet
	// Pods are attached to the node's bridge, or directly, in order.
	Pods []*Pod

	lab    *Lab
	second bool             // it shares its host with a node of the lab
	once   sync.Once        // attaches the pods
	user   *tenant          // with Spec.Rootless, else nil
	key    *ecdh.PrivateKey // that of its wireguard-go
}

// Pod is a container's network: eth0, joined to its node's bridge by a veth pair, or a TUN whose other end is
// weftd's.
type Pod struct {
	*Host
	// Node is where the pod runs.
	Node *Node
	// V4 and V6 are its addresses; the zero Addr if the overlay does not have the family.
	V4, V6 netip.Addr

	pid int // a process in its namespace, if that is its node's user's; else 0
}

// Addr is the pod's address in family 4 or 6, the zero Addr if it has none.
func (p *Pod) Addr(family int) netip.Addr {
	if family == 6 {
		return p.V6
	}
	return p.V4
}

func (l *Lab) nodeDir(index int) string {
	return filepath.Join(l.Spec.StateDir, fmt.Sprintf("node%d", index))
}

// newNode makes the node's namespace, its folder and, unless Direct, its place on the wire.
func (l *Lab) newNode() (made *Node, err error) {
	index := len(l.Nodes()) + 1
	host, err := l.newHost(fmt.Sprintf("node%d", index))
	if err != nil {
		return nil, err
	}
	dir := l.nodeDir(index)
	n := &Node{
		Host: host, Place: host, Index: index, lab: l,
		Underlay4: underlay4(index), Underlay6: underlay6(index),
	}
	n.files(dir)
	defer func() {
		if err != nil && n.user != nil { // else Close does so
			n.user.close()
		}
	}()
	if err := os.MkdirAll(n.CacheDir, 0o755); err != nil {
		return nil, err
	}
	var by []string
	if l.Spec.Rootless {
		if err := n.newTenant(); err != nil {
			return nil, err
		}
		by = n.user.by()
	}
	n.Daemon = &Daemon{
		Name: n.Name + "'s weftd", LogFile: filepath.Join(dir, "weftd.log"),
		ns: n.NS, path: l.Spec.WeftdPath, by: by, args: l.weftdArgs(n), nice: l.Spec.Nice,
	}
	if l.Spec.Driver == WireGuardGo {
		n.Daemon = n.wireGuard()
	}
	if err := os.WriteFile(n.NetConfigFile, l.Spec.NetworkConfig, 0o644); err != nil {
		return nil, err
	}
	if err := n.sysctls(map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}); err != nil {
		return nil, err
	}
	if !l.Spec.Direct {
		if err := l.plug(n.Host, index); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = append(l.nodes, n)
	return n, nil
}

// attachPods makes the bridge, if there is one, and the pods when it is called first; later calls only read
// Net again.
func (n *Node) attachPods() error {
	if n.lab.Spec.Driver == Weftd {
		net, err := readPodNet(n.SubnetFile)
		if err != nil {
			return err
		}
		n.Net = net
	}
	var err error
	n.once.Do(func() { err = n.makePods() })
	return err
}

func (n *Node) makePods() error {
	if n.lab.Spec.Attach == DirectAttach {
		return n.attachDirectly()
	}
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.bridge(), MTU: n.Net.MTU}}
	if err := n.Place.NS.Netlink().LinkAdd(br); err != nil {
		return fmt.Errorf("add %s: %w", n.bridge(), err)
	}
	if err := n.Place.configure(n.bridge(), n.Net.gateways()...); err != nil {
		return err
	}
	bridge, err := n.Place.link(n.bridge())
	if err != nil {
		return err
	}
	for i := 1; i <= n.lab.Spec.PodsPerNode; i++ {
		p, err := n.makePod(i, bridge.Attrs().Index)
		if err != nil {
			return err
		}
		n.Pods = append(n.Pods, p)
	}
	return nil
}

// newPod makes the namespace of the node's pod i, which has no interface yet.
func (n *Node) newPod(i int) (p *Pod, err error) {
	p = &Pod{Node: n}
	name := fmt.Sprintf("%s-%spod%d", n.Name, n.label(), i)
	if n.user != nil {
		p.Host, p.pid, err = n.user.space(name)
	} else {
		p.Host, err = n.lab.newHost(name)
	}
	return p, err
}

func (n *Node) makePod(i, bridge int) (*Pod, error) {
	p, err := n.newPod(i)
	if err != nil {
		return nil, err
	}
	host := p.Host
	port := fmt.Sprintf("%spod%d", n.label(), i)
	if err := connect(n.Place, port, host, "eth0", n.Net.MTU); err != nil {
		return nil, err
	}
	l, err := n.Place.link(port)
	if err != nil {
		return nil, err
	}
	if err := n.Place.NS.Netlink().LinkSetMasterByIndex(l, bridge); err != nil {
		return nil, fmt.Errorf("plug %s into %s: %w", port, n.bridge(), err)
	}
	if err := n.Place.configure(port); err != nil {
		return nil, err
	}
	if err := p.limitGSO(); err != nil {
		return nil, err
	}
	for _, gw := range n.Net.gateways() {
		addr := gw.Addr()
		for range i { // the bridge has the first address, and the pods have those that follow
			addr = addr.Next()
		}
		if !gw.Contains(addr) {
			return nil, fmt.Errorf("subnet %s has no address for pod %d", gw.Masked(), i)
		}
		if err := host.configure("eth0", netip.PrefixFrom(addr, gw.Bits())); err != nil {
			return nil, err
		}
		if err := host.route(anywhereLike(addr), gw.Addr(), "eth0", 0); err != nil {
			return nil, err
		}
		if addr.Is4() {
			p.V4 = addr
		} else {
			p.V6 = addr
		}
	}
	return p, nil
}

// limitGSO makes the pod's superpackets so small that weftd can send each with one call, as a CNI plugin may
// that makes the link. If the kernel carries the packets, its default is better and is left alone.
func (p *Pod) limitGSO() error {
	limit := encap.GSOMaxSize(encap.FormatIP, p.Node.Net.MTU)
	if p.Node.lab.Spec.Driver != Weftd || limit == 0 {
		return nil
	}
	l, err := p.link("eth0")
	if err != nil {
		return err
	}
	if err := p.NS.Netlink().LinkSetGSOMaxSize(l, limit); err != nil { // for both families
		return fmt.Errorf("limit the superpackets of %s to %d bytes: %w", p.Name, limit, err)
	}
	return nil
}

// Fault returns err with the end of the node's log, as a NodeError.
func (n *Node) Fault(err error) error {
	if err == nil {
		return nil
	}
	return &NodeError{Node: n.Name, LogFile: n.Daemon.LogFile, LogTail: n.Daemon.LogTail(30), Err: err}
}

// Start starts the node's weftd and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	if err := n.Daemon.Start(); err != nil {
		return n.Fault(err)
	}
	return n.WaitReady(ctx)
}

// Stop ends the node's weftd by SIGTERM; an exit status other than 0 is an error.
func (n *Node) Stop(ctx context.Context) error { return n.Fault(n.Daemon.Stop(ctx)) }

// Kill ends the node's weftd with SIGKILL.
func (n *Node) Kill() error { return n.Daemon.Kill() }

// Restart is Stop and Start.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// PodNet says what a node's pods are given. V4 and V6 are the bridge's address with the subnet's
// length, or the zero Prefix if there is no such family. MTU is in bytes.
type PodNet struct {
	V4, V6 netip.Prefix
	MTU    int
}

// readPodNet reads what weftd wrote for the CNI plugin.
func readPodNet(path string) (PodNet, error) {
	f, err := subnetenv.Read(path)
	return PodNet{V4: f.Subnet, V6: f.IPv6Subnet, MTU: f.MTU}, err
}

// gateways returns the bridge's addresses.
func (p PodNet) gateways() []netip.Prefix {
	var all []netip.Prefix
	for _, g := range []netip.Prefix{p.V4, p.V6} {
		if g.IsValid() {
			all = append(all, g)
		}
	}
	return all
}

func (p PodNet) subnets() string {
	var all []string
	for _, g := range p.gateways() {
		all = append(all, g.Masked().String())
	}
	return strings.Join(all, " ")
}

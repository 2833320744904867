package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"weft/test/lab/netns"
)

// Lab is a running cluster. Its methods may be called from any goroutine, but AddNode
// and Close must not be called at the same time.
type Lab struct {
	// Spec has every default filled in.
	Spec Spec
	// Wire is the host with the underlay's bridge; nil with Spec.Direct. The bridge's port for node N is
	// the device "nodeN" there. A test that wants loss, delay, a capture or a cut cable makes it at that port.
	Wire *Host
	// Store is set with a Separate store.
	Store *Store

	overlay overlay
	mu      sync.Mutex
	nodes   []*Node
	spaces  []*netns.Namespace // in order of creation
	left    []netns.Process    // what Close could not end
	once    sync.Once
}

// NodeError is a fault of one node, with the end of its log.
type NodeError struct {
	Node    string
	LogFile string
	LogTail []byte
	Err     error
}

func (e *NodeError) Error() string { return e.Node + ": " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

// Up builds the lab and returns when every node is ready and every pod is attached. After
// an error everything is taken down again, but the state directory is kept because of its logs.
func Up(ctx context.Context, spec Spec) (*Lab, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, err
	}
	over, err := spec.overlay()
	if err != nil {
		return nil, err
	}
	if spec.StateDir == "" {
		if spec.StateDir, err = os.MkdirTemp("", "weft-lab-"); err != nil {
			return nil, err
		}
	}
	l := &Lab{Spec: spec, overlay: over}
	if err := l.build(ctx); err != nil {
		l.Spec.KeepState = true
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lab) build(ctx context.Context) error {
	start := time.Now()
	if err := l.checkPaths(); err != nil {
		return err
	}
	if !l.Spec.Direct {
		if err := l.buildWire(); err != nil {
			return err
		}
	}
	if l.Spec.Driver == Weftd && l.Spec.Store == Separate {
		if err := l.buildStore(ctx); err != nil {
			return err
		}
	}
	for range l.Spec.Nodes {
		if _, err := l.newNode(); err != nil {
			return err
		}
	}
	if l.Spec.Direct {
		if err := l.joinDirectly(); err != nil {
			return err
		}
	}
	if err := settle(ctx, l.Hosts()); err != nil {
		return err
	}
	l.progress("%d nodes on wire %s (%s)", l.Spec.Nodes, l.Spec.Wire, since(start))
	return l.startNodes(ctx, l.Nodes())
}

// startNodes brings up the data plane and the pods of nodes. The node with the embedded store comes first.
func (l *Lab) startNodes(ctx context.Context, nodes []*Node) error {
	if err := l.startDataPlane(ctx, nodes); err != nil {
		return err
	}
	var hosts []*Host // of these nodes only, since a test may have cut another node's cable
	for _, n := range nodes {
		hosts = append(hosts, n.hosts()...)
	}
	return settle(ctx, hosts)
}

func (l *Lab) startDataPlane(ctx context.Context, nodes []*Node) error {
	switch l.Spec.Driver {
	case Bare:
		return nil
	case KernelHostGW, KernelVXLAN, WireGuardGo:
		return l.startByHand(ctx, nodes)
	case Weftd:
	}
	if l.Spec.Store == Embedded && nodes[0].Index == 1 {
		if err := l.startNode(ctx, nodes[0]); err != nil {
			return err
		}
		nodes = nodes[1:]
	}
	faults := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { faults[i] = l.startNode(ctx, n) })
	}
	wg.Wait()
	return errors.Join(faults...)
}

func (l *Lab) startNode(ctx context.Context, n *Node) error {
	start := time.Now()
	if err := n.Start(ctx); err != nil {
		return err
	}
	if err := n.attachPods(); err != nil {
		return n.Fault(err)
	}
	l.progress("%s ready: subnet %s, mtu %d (%s)", n.Name, n.Net.subnets(), n.Net.MTU, since(start))
	return nil
}

// AddNode puts one more node on the wire, and returns when it is ready.
func (l *Lab) AddNode(ctx context.Context) (*Node, error) {
	if l.Spec.Direct {
		return nil, errors.New("a direct cable has two ends: no further node")
	}
	if len(l.Nodes()) >= MaxNodes {
		return nil, fmt.Errorf("no more than %d nodes", MaxNodes)
	}
	n, err := l.newNode()
	if err != nil {
		return nil, err
	}
	return n, l.startNodes(ctx, []*Node{n})
}

// Nodes returns the lab's nodes in order; the slice is the caller's.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Node(nil), l.nodes...)
}

// Node returns the node with that number; the first is 1. It panics if there is none.
func (l *Lab) Node(index int) *Node { return l.Nodes()[index-1] }

// Pods returns all pods, in the order of their nodes and numbers.
func (l *Lab) Pods() []*Pod {
	var all []*Pod
	for _, n := range l.Nodes() {
		all = append(all, n.Pods...)
	}
	return all
}

// Hosts returns the wire, the store, and the nodes with their pods.
func (l *Lab) Hosts() []*Host {
	var all []*Host
	if l.Wire != nil {
		all = append(all, l.Wire)
	}
	if l.Store != nil {
		all = append(all, l.Store.Host)
	}
	for _, n := range l.Nodes() {
		all = append(all, n.hosts()...)
	}
	return all
}

// hosts returns the node and its pods.
func (n *Node) hosts() []*Host {
	all := []*Host{n.Host}
	if n.Place != n.Host {
		all = append(all, n.Place)
	}
	for _, p := range n.Pods {
		all = append(all, p.Host)
	}
	return all
}

// settle waits until the kernel has noticed that every veth and bridge is plugged in, which
// takes it a moment. Until then it drops what is sent. If that is the first neighbour
// solicitation, the address is not found before the kernel repeats it a second later.
func settle(ctx context.Context, hosts []*Host) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, h := range hosts {
		for {
			down, err := h.withoutCarrier()
			if err != nil {
				return err
			}
			if down == "" {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("%s: %s has no carrier: %w", h.Name, down, context.Cause(ctx))
			}
		}
	}
	return nil
}

// newHost makes a host. Close closes its namespace. No address of it is tentative, link-local ones neither:
// until the kernel has looked for duplicates, a router sends no neighbour solicitation, and drops what it
// should forward.
func (l *Lab) newHost(name string) (*Host, error) {
	ns, err := netns.New(name)
	if err != nil {
		return nil, err
	}
	h := l.adopt(name, ns)
	return h, h.sysctls(map[string]string{"net/ipv6/conf/all/accept_dad": "0",
		"net/ipv6/conf/default/accept_dad": "0"})
}

// adopt makes a host of a namespace, which Close closes.
func (l *Lab) adopt(name string, ns *netns.Namespace) *Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaces = append(l.spaces, ns)
	return &Host{Name: name, NS: ns}
}

// Close stops every daemon and removes every namespace and the state directory. It kills the daemons
// instead of asking them to end, which is quicker, and they have nothing to lose. It may be called again.
func (l *Lab) Close() {
	l.once.Do(func() {
		for _, n := range l.Nodes() {
			_ = n.Daemon.Kill() // fails if it does not run, which is what we want
			if n.user != nil {
				n.user.close()
			}
		}
		if l.Store != nil {
			_ = l.Store.Daemon.Kill()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		var ids []netns.ID
		for _, ns := range l.spaces {
			if id, err := ns.ID(); err == nil {
				ids = append(ids, id)
			}
		}
		l.left = netns.End(patience, ids...) // also a weftd that an upgrade started, whose parent was another weftd
		for i := len(l.spaces) - 1; i >= 0; i-- {
			l.spaces[i].Close()
		}
		if !l.Spec.KeepState {
			_ = os.RemoveAll(l.Spec.StateDir)
		}
	})
}

// patience is how long a process has to end after SIGKILL.
const patience = 5 * time.Second

// Left returns the processes that Close could not end.
func (l *Lab) Left() []netns.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

func (l *Lab) checkPaths() error {
	dir, err := filepath.Abs(l.Spec.StateDir)
	if err != nil {
		return err
	}
	l.Spec.StateDir = dir
	longest := l.nodeDir(MaxNodes) + "/" + controlSocket
	if len(longest) > maxSocketPath {
		return fmt.Errorf("state directory %s is too long: a socket's path ends at %d bytes", dir, maxSocketPath)
	}
	return os.MkdirAll(dir, 0o755)
}

func (l *Lab) progress(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Spec.Progress(fmt.Sprintf(format, args...))
}

// since returns the time since start, rounded for a progress line.
func since(start time.Time) time.Duration { return time.Since(start).Round(10 * time.Millisecond) }

package overlay

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"weft/bench/ends"
	"weft/bench/machine"
	"weft/bench/plan"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// testbed is what a rung is measured in.
type testbed struct {
	rung     Rung
	lab      *lab.Lab
	mtu      int
	from, to probe.Endpoint
	session  *ends.Client
}

func (b *testbed) close() {
	if b.session != nil {
		_ = b.session.Close() // everything has been measured
	}
	b.lab.Close()
}

// raise builds the rung's testbed. The caller closes it.
func (r Rung) raise(ctx context.Context, wire string, programs programs, say func(string)) (_ *testbed,
	err error) {
	spec := r.lab
	spec.Name, spec.Nodes, spec.PodsPerNode = r.Name, 2, max(1, spec.PodsPerNode)
	spec.Direct, spec.Wire = true, wire
	spec.WeftdPath, spec.WireGuardPath = programs.weftd, programs.wireGuard
	spec.Progress = func(line string) { say(r.Name + ": " + line) }
	b := &testbed{rung: r}
	if b.lab, err = lab.Up(ctx, spec); err != nil {
		return nil, fmt.Errorf("rung %s: %w%s", r.Name, err, logOf(err))
	}
	defer func() {
		if err != nil {
			b.close()
			err = fmt.Errorf("rung %s: %w", r.Name, err)
		}
	}()
	switch {
	case spec.Rootless: // it is measured between the users' namespaces
		from, to := b.lab.Node(1), b.lab.Node(2)
		b.from = probe.Endpoint{Name: from.Place.Name, NS: from.Place.NS, Addr: from.Net.V4.Addr()}
		b.to = probe.Endpoint{Name: to.Place.Name, NS: to.Place.NS, Addr: to.Net.V4.Addr()}
		b.mtu = min(from.Net.MTU, to.Net.MTU)
	case spec.Driver == lab.Bare:
		b.from, b.to, b.mtu = b.lab.Node(1).Endpoint(4), b.lab.Node(2).Endpoint(4), b.lab.Spec.MTU
	default:
		pods := b.lab.Pods() // on one node the first two are node 1's, else each is a node's
		b.from, b.to, b.mtu = pods[0].Endpoint(4), pods[1].Endpoint(4),
			min(pods[0].Node.Net.MTU, pods[1].Node.Net.MTU)
	}
	if err == nil {
		err = lab.Reach(ctx, b.from, b.to.Addr)
	}
	if err == nil && spec.Driver == lab.Weftd {
		err = b.askPath(ctx)
	}
	if err == nil {
		b.session, err = ends.Local(ctx, b.from, b.to, b.pids)
	}
	return b, err
}

// tookPath comes before the path in what a rung says about itself.
const tookPath = "; it took path "

// askPath asks the daemons which path they took: if a weftd cannot have the path that it was
// told, it may take a slower one, and a figure must not be reported for the wrong path. If the
// rung leaves the choice to weftd, the answer is added to the rung's description.
func (b *testbed) askPath(ctx context.Context) error {
	for _, n := range b.lab.Nodes() {
		var status struct {
			Backend struct {
				Path  string   `json:"path"`
				Notes []string `json:"notes"`
			} `json:"backend"`
		}
		if err := lab.Ask(ctx, n.ControlSocket, "status", &status); err != nil {
			return fmt.Errorf("%s: ask for its path: %w", n.Name, err)
		}
		got := status.Backend.Path
		if b.rung.path == "" {
			b.rung.About, _, _ = strings.Cut(b.rung.About, tookPath)
			b.rung.About += tookPath + got
			continue
		}
		if got != b.rung.path {
			return fmt.Errorf("%s took path %q: %s", n.Name, got, strings.Join(status.Backend.Notes, "; "))
		}
	}
	return nil
}

// logOf returns the end of the log of the node that err blames.
func logOf(err error) string {
	var fault *lab.NodeError
	if errors.As(err, &fault) {
		return "\n" + string(fault.LogTail)
	}
	return ""
}

// hasDaemon reports whether each node runs the lab's daemon: weftd or wireguard-go.
func (b *testbed) hasDaemon() bool {
	return b.rung.lab.Driver == lab.Weftd || b.rung.lab.Driver == lab.WireGuardGo
}

// path describes the testbed for plan.Run.
func (b *testbed) path() *plan.Path {
	p := &plan.Path{
		Name: b.rung.Name, About: b.rung.About, MTU: b.mtu, IPv6: b.from.Addr.Is6(),
		Once: b.rung.Name == Veth, CPUs: runtime.NumCPU(), Ends: b.session.There(), Check: b.daemons,
		Close: b.close,
	}
	if b.rung.Name == WireGuard {
		p.Daemon = b.rung.Name
	}
	if b.hasDaemon() && !b.rung.onOneNode() { // on one node its weftd has an etcd inside, which takes memory too
		p.Memory = func() (now, peak uint64, err error) { return machine.Resident(b.lab.Node(2).Daemon.PID()) }
	}
	return p
}

// pids are the rung's daemons.
func (b *testbed) pids() (l []int) {
	if !b.hasDaemon() {
		return nil
	}
	for _, n := range b.lab.Nodes() {
		if pid := n.Daemon.PID(); pid > 0 {
			l = append(l, pid)
		}
	}
	return l
}

// daemons returns an error if a daemon that should run has ended.
func (b *testbed) daemons() error {
	if !b.hasDaemon() || len(b.pids()) == len(b.lab.Nodes()) {
		return nil
	}
	err := fmt.Errorf("rung %s: a daemon ended", b.rung.Name)
	for _, n := range b.lab.Nodes() {
		err = errors.Join(err, fmt.Errorf("%s: %s", n.Name, n.Daemon.LogTail(20)))
	}
	return err
}

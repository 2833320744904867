package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"weft/bench/load"
	"weft/bench/machine"
	"weft/bench/plan"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// testbed is what a rung is measured in: a lab, or two namespaces with one veth pair.
type testbed struct {
	rung     Rung
	lab      *lab.Lab     // nil for a veth pair, and without root
	rootless *rootlessBed // nil with root
	mtu      int
	from, to probe.Endpoint
	close    func()
}

// raise builds the rung's testbed. The caller calls its close.
func (r Rung) raise(ctx context.Context, wire lab.WireKind, programs programs, say func(string)) (*testbed,
	error) {
	if r.way == link {
		return raiseLink(r, wire)
	}
	if r.asUser() {
		return raiseRootless(ctx, r, wire, programs)
	}
	spec := lab.Spec{
		Name: r.Name, Nodes: 2, PodsPerNode: 1, Direct: true, Wire: wire, WeftdPath: programs.weftd,
		WireGuardPath: programs.wireGuard,
		Progress:      func(line string) { say(r.Name + ": " + line) },
	}
	if r.way.onOneNode() {
		spec.PodsPerNode = 2
	}
	switch r.way {
	case hostGW, nodeBridge:
		spec.Driver = lab.KernelHostGW
	case vxlan:
		spec.Driver = lab.KernelVXLAN
	case wireguard:
		spec.Driver = lab.WireGuardGo
	case otherType:
		spec.Driver, spec.NetworkConfig = lab.Weftd,
			json.RawMessage(fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":%q,"Userspace":"always"}}`,
				r.Name))
	case direct, nodeDirect:
		spec.Driver, spec.Attach = lab.Weftd, lab.DirectAttach
	default:
		spec.Driver = lab.Weftd
		if r.Name == Auto {
			break
		}
		spec.NetworkConfig = json.RawMessage(
			fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":%q}}`, r.Name))
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("rung %s: %w%s", r.Name, err, logOf(err))
	}
	b := &testbed{rung: r, lab: l, close: l.Close}
	pods := l.Pods() // on one node the first two are node 1's, else each is a node's
	b.from, b.to, b.mtu = pods[0].Endpoint(4), pods[1].Endpoint(4),
		min(pods[0].Node.Net.MTU, pods[1].Node.Net.MTU)
	err = lab.Reach(ctx, b.from, b.to.Addr)
	if err == nil && r.way.usesWeftd() {
		err = b.askPath(ctx)
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("rung %s: %w", r.Name, err)
	}
	return b, nil
}

// tookPath comes before the path in what a rung says about itself.
const tookPath = "; it took path "

// askPath asks the daemons which path they took: if a weftd cannot have the path that it was
// told, it may take a slower one, and a figure must not be reported for the wrong path. If the
// rung leaves the choice to weftd, the answer is added to the rung's description.
func (b *testbed) askPath(ctx context.Context) error {
	for _, n := range b.lab.Nodes() {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", n.ControlSocket)
		}
		client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://weftd/v1/status", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%s: ask for its path: %w", n.Name, err)
		}
		var status struct {
			Backend struct {
				Path  string   `json:"path"`
				Notes []string `json:"notes"`
			} `json:"backend"`
		}
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&status), resp.Body.Close())
		if err != nil {
			return fmt.Errorf("%s: read its path: %w", n.Name, err)
		}
		got := status.Backend.Path
		if b.rung.Name == Auto || b.rung.way == otherType || b.rung.way.isDirect() {
			b.rung.About, _, _ = strings.Cut(b.rung.About, tookPath)
			b.rung.About += tookPath + got
			continue
		}
		if got != b.rung.Name {
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

// path describes the testbed for plan.Run.
func (b *testbed) path() *plan.Path {
	p := &plan.Path{
		Name: b.rung.Name, About: b.rung.About, MTU: b.mtu, IPv6: b.from.Addr.Is6(),
		Once: b.rung.way == link, CPUs: runtime.NumCPU(), Ends: b,
	}
	if b.rootless != nil {
		p.Check, p.Daemon = b.daemons, b.rootless.carrier
	}
	if b.rung.way.usesWeftd() || b.rung.way == wireguard {
		p.Check, p.Daemon = b.daemons, "weftd"
		if b.rung.way == wireguard {
			p.Daemon = b.rung.Name
		}
		if b.rung.way.onOneNode() {
			return p // its weftd has an etcd inside, which takes memory too
		}
		p.Memory = func() (now, peak uint64, err error) { return machine.Resident(b.lab.Node(2).Daemon.PID()) }
	}
	return p
}

// pids are the rung's daemons.
func (b *testbed) pids() (l []int) {
	if b.rootless != nil {
		return b.rootless.pids()
	}
	if !b.rung.way.usesWeftd() && b.rung.way != wireguard {
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
	if b.rootless != nil {
		return b.rootless.alive()
	}
	if len(b.pids()) == len(b.lab.Nodes()) {
		return nil
	}
	err := fmt.Errorf("rung %s: a daemon ended", b.rung.Name)
	for _, n := range b.lab.Nodes() {
		err = errors.Join(err, fmt.Errorf("%s: %s", n.Name, n.Daemon.LogTail(20)))
	}
	return err
}

// TCP implements plan.Ends.
func (b *testbed) TCP(ctx context.Context, streams int, warmUp, last time.Duration) (load.TCPResult, error) {
	return load.TCP(ctx, load.TCPPlan{From: b.from, To: b.to, Streams: streams, WarmUp: warmUp, Duration: last,
		PIDs: b.pids()})
}

// Open implements plan.Ends.
func (b *testbed) Open(_ context.Context, t load.Traffic, mode load.ReceiveMode) (plan.Flow, error) {
	return load.NewFlow(b.from, b.to, t, mode)
}

// PingPong implements plan.Ends.
func (b *testbed) PingPong(ctx context.Context, size int, last time.Duration,
	at plan.Placement) (load.RoundTrips, error) {
	return load.PingPong(ctx, load.PingPongPlan{From: b.from, To: b.to, Size: size, Duration: last,
		FromCPU: at.From, ToCPU: at.To})
}

package ping

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/doctor"
	"weft/lease"
	"weft/routing"
)

// Known is what is known of this node and the others.
type Known struct {
	// Source says where it is from, and Notes what this host cannot do.
	Source string
	Notes  []string
	// Running says that this node's weftd answers, and Asks that it asks its peers.
	Running, Asks bool
	Config        routing.Network
	// Own, Under4 and Under6 are this node's, Link is its underlay's device with UnderMTU, MTU the largest inner
	// packet, and Path what moves the packets.
	Own            lease.Subnets
	Under4, Under6 netip.Addr
	Link, Path     string
	UnderMTU, MTU  int
	// Nodes are all nodes, this one too where that is known.
	Nodes []Node
}

// Node is one node.
type Node struct {
	Name, ID string
	Own      bool
	Subnets  lease.Subnets
	// Under4 and Under6 are its addresses on the underlay.
	Under4, Under6 netip.Addr
	Weft           bool
	Recv           []string
	MTU            int
	// Unused says that weftd does not use it as a peer. Answerers are the overlay addresses at which its weftd
	// answers questions.
	Unused    bool
	Answerers []netip.Addr
	Reached   []control.Reached
}

// Learn asks the weftd behind socket, and where that does not answer, the state that it left and the store.
func Learn(ctx context.Context, socket string, environ []string) (Known, error) {
	c := control.NewClient(socket)
	st, err := c.Status(ctx)
	if err == nil {
		peers, err := c.Peers(ctx)
		if err != nil {
			return Known{}, err
		}
		leases, err := c.Leases(ctx)
		if err != nil { // the peers say nearly as much
			leases = control.Leases{}
		}
		return running(st, peers, leases)
	}
	return fallBack(ctx, socket, environ, err)
}

// running is what a weftd that answers knows.
func running(st control.Status, peers control.Peers, leases control.Leases) (Known, error) {
	k := Known{
		Source: "the running weftd", Running: true, Asks: peers.Probing, Link: st.Underlay.Link,
		UnderMTU: st.Underlay.MTU, MTU: st.Backend.MTU,
		Under4: st.Underlay.Address, Under6: st.Underlay.IPv6Address, Path: st.Backend.Path,
	}
	if k.Path == "" {
		k.Path = kernelPath
	}
	if !st.Ready {
		k.Notes = append(k.Notes, "this node is not ready, so that what follows may be its own fault: weft status")
	}
	if st.Lease == nil {
		return k, fmt.Errorf("this node has no subnet yet, and so no way to another: weft status says what it " +
			"waits for")
	}
	k.Own = lease.Subnets{V4: st.Lease.Subnet, V6: st.Lease.IPv6Subnet}
	var err error
	if k.Config, err = routing.Parse([]byte(st.Config.InUse)); err != nil {
		return k, fmt.Errorf("the network config of the running weftd: %w", err)
	}
	for _, r := range leases.Leases {
		k.Nodes = append(k.Nodes, Node{
			Name: r.Name, ID: r.Node, Own: r.Own, Subnets: lease.Subnets{V4: r.Subnet, V6: r.IPv6Subnet},
			Under4: r.PublicIP, Under6: r.PublicIPv6, Unused: !r.Own,
		})
	}
	for _, p := range peers.Peers {
		i := slices.IndexFunc(k.Nodes, func(n Node) bool { return !n.Own && slices.ContainsFunc(p.Subnets, n.has) })
		if i < 0 {
			i = len(k.Nodes)
			k.Nodes = append(k.Nodes, nodeOf(p))
		}
		n := &k.Nodes[i]
		n.Name, n.ID, n.Weft, n.Recv, n.MTU, n.Reached, n.Unused = p.Name, p.NodeID, p.Weft, p.Recv, p.MTU,
			p.Reached, false
		for _, x := range p.Probes {
			if x.By == byUDP {
				n.Answerers = append(n.Answerers, x.Address)
			}
		}
	}
	if !slices.ContainsFunc(k.Nodes, func(n Node) bool { return n.Own }) {
		k.Nodes = append(k.Nodes, Node{Name: st.Name, ID: st.NodeID, Own: true, Subnets: k.Own,
			Under4: st.Underlay.PublicIP, Under6: st.Underlay.PublicIPv6})
	}
	return k, nil
}

func (n Node) has(p netip.Prefix) bool {
	return p.IsValid() && (p == n.Subnets.V4 || p == n.Subnets.V6)
}

// nodeOf is a peer without a record that was read.
func nodeOf(p control.Peer) Node {
	var n Node
	for _, s := range p.Subnets {
		if s.Addr().Is4() {
			n.Subnets.V4 = s
		} else {
			n.Subnets.V6 = s
		}
	}
	if p.Address.Is4() {
		n.Under4 = p.Address
	} else {
		n.Under6 = p.Address
	}
	return n
}

// fallBack is what can be known without weftd, which failed with that error.
func fallBack(ctx context.Context, socket string, environ []string, because error) (Known, error) {
	why := "it does not run: systemctl status weftd"
	if errors.Is(because, control.ErrStuck) {
		why = because.Error()
	}
	r := doctor.Request{Socket: socket, Environ: environ, Offline: true}
	f := doctor.Gather(ctx, r)
	if len(f.Network.Records) == 0 {
		r.Offline = false
		f = doctor.Gather(ctx, r)
	}
	k := Known{
		Source: f.Network.RecordsFrom, Config: f.Network.Network, Own: f.Network.Own, Link: f.Links.Underlay.Name,
		UnderMTU: f.Links.Underlay.MTU, MTU: f.Network.MTU,
		Under4: f.Links.Underlay.Addr4, Under6: f.Links.Underlay.Addr6, Path: userSpace,
	}
	if len(f.Network.Records) == 0 {
		return k, fmt.Errorf("%w; and without it no node is known: neither the state that it left in --cache-dir "+
			"nor the store says of any (weft doctor says why)", because)
	}
	carrier := k.Config.Facts().Carrier
	if carrier == routing.CarrierKernel || carrier == routing.CarrierEither &&
		slices.ContainsFunc(f.Links.Links, func(l doctor.Link) bool {
			return slices.Contains([]string{"vxlan", "wireguard", "ipip"}, l.Kind)
		}) {
		k.Path = kernelPath
	}
	k.Notes = append(k.Notes, "weftd of this node does not answer ("+why+
		"), so that no other node's weftd can be asked")
	if k.Path != kernelPath {
		k.Notes = append(k.Notes, "it moves the packets here, and so nothing that goes through the overlay could "+
			"be asked: start it first")
	}
	for _, r := range f.Network.Records {
		n := Node{Name: r.Called(), ID: r.Node(), Own: r.Subnets == k.Own, Subnets: r.Subnets, Under4: r.PublicIP,
			Under6: r.PublicIPv6}
		if r.Weft != nil {
			n.Weft, n.Recv, n.MTU = true, r.Weft.Recv, r.Weft.MTU
		}
		k.Nodes = append(k.Nodes, n)
	}
	return k, nil
}

// userSpace is a path that weft carries, of which no more is known.
const userSpace = "user-space"

// Want says what of a node is asked.
type Want struct {
	// Pod is an address of a pod; the zero Addr for the node alone.
	Pod netip.Addr
	// Families are 4, 6 or both; empty for all that there are.
	Families []int
}

// ErrNoWay says that there is nothing to ask.
var ErrNoWay = errors.New("there is no way to ask")

// Routes are those to the node, one for each family.
func (k Known) Routes(n Node, want Want) ([]Route, error) {
	var out []Route
	for _, six := range []bool{false, true} {
		if want.Pod.IsValid() && want.Pod.Is6() != six || len(want.Families) > 0 &&
			!slices.Contains(want.Families, family(six)) {
			continue
		}
		if w, ok := k.way(n, six, want.Pod); ok {
			out = append(out, w)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case len(want.Families) > 0:
		return nil, fmt.Errorf("%w: %s and this node have no subnets of IPv%d both", ErrNoWay, n.Name,
			want.Families[0])
	}
	return nil, fmt.Errorf("%w: %s and this node have no subnets of one family", ErrNoWay, n.Name)
}

func family(six bool) int {
	if six {
		return 6
	}
	return 4
}

func (k Known) way(n Node, six bool, pod netip.Addr) (Route, bool) {
	facts := k.Config.Facts()
	w := Route{
		Six: six, Peer: n.Name, Local: n.Own, Backend: k.Config.BackendType, Path: k.Path, Weft: n.Weft,
		Direct: facts.Direct, Link: k.Link,
		UDPPort: facts.Port, AnswersPort: facts.Port != 0 && slices.Contains(n.Recv, "probe"),
		Not: map[diagnose.Layer]string{},
	}
	subnet, own := n.Subnets.V4, k.Own.V4
	w.Under, w.UnderFrom = n.Under4, k.Under4
	if six {
		subnet, own = n.Subnets.V6, k.Own.V6
		if n.Under6.IsValid() && k.Under6.IsValid() { // else its IPv6 subnet is reached over IPv4
			w.Under, w.UnderFrom = n.Under6, k.Under6
		}
	}
	if !subnet.IsValid() || !own.IsValid() {
		return w, false
	}
	if !w.Under.IsValid() { // IPv6 alone carries it
		w.Under, w.UnderFrom = n.Under6, k.Under6
	}
	if w.Under.Is4() {
		w.Protocol = facts.Guard.Protocol
	}
	if w.Under.Is6() && facts.Port6 != 0 {
		w.UDPPort = facts.Port6
	}
	w.Overlay, w.From = subnet.Masked().Addr(), own.Masked().Addr()
	w.Gateway = w.Overlay.Next()
	if pod.IsValid() && pod != w.Gateway && pod != w.Overlay {
		w.Pod = pod
	}
	if w.Direct {
		w.Overlay, w.From = w.Under, w.UnderFrom
	}
	w.MTU, w.UnderMTU = k.MTU, k.UnderMTU
	if n.MTU > 0 && n.MTU < k.MTU {
		w.MTU, w.UnderMTU = n.MTU, k.UnderMTU-(k.MTU-n.MTU)
	}
	k.limits(&w, n, subnet)
	return w, true
}

// limits says which layers cannot be asked.
func (k Known) limits(w *Route, n Node, subnet netip.Prefix) {
	through := ""
	for _, r := range n.Reached {
		switch {
		case r.Subnet != subnet:
		case r.How == routing.HowRoute.String():
			w.UDPPort, w.Protocol = 0, 0 // its packets go without the tunnel
		case r.How == routing.HowSkipped.String():
			through = "this node does not reach that subnet: " + r.Reason
		}
	}
	switch {
	case w.Local, through != "":
	case n.Unused:
		through = "this node does not use its record, for the reason that weft status and weft lease list say"
	case !k.Running && k.Path != kernelPath:
		through = "this node's weftd, which moves the packets, does not answer"
	}
	if through != "" {
		for _, l := range []diagnose.Layer{diagnose.DataPlane, diagnose.Daemon, diagnose.Bridge, diagnose.Pod} {
			w.Not[l] = through
		}
		return
	}
	switch {
	case !k.Running:
		w.Not[diagnose.Daemon] = "only this node's weftd can ask it, and that does not answer"
	case !n.Weft:
		w.Not[diagnose.Daemon] = "it does not run weft, and flannel answers no questions"
	case !k.Asks:
		w.Not[diagnose.Daemon] = "this node asks nobody (--probe=false, or Backend.Probe)"
	case !slices.Contains(n.Answerers, w.Overlay):
		w.Not[diagnose.Daemon] = "its record names no port for questions: it runs with --probe=false, or an " +
			"older weft"
	}
}

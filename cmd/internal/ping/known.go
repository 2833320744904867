package ping

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/doctor"
	"weft/cmd/internal/records"
	"weft/lease"
	"weft/routing"
	"weft/routing/underlay"
)

// Known is what is known of this node and the others.
type Known struct {
	// Source says where it is from, and Notes what this host cannot do.
	Source string
	Notes  []string
	// Running says that this node's weftd answers, and Asks that it asks its peers.
	Running, Asks bool
	Config        routing.Network
	// Own and Under are this node's, MTU is the largest inner packet, and DataPath what moves the packets.
	Own      lease.Subnets
	Under    underlay.Link
	MTU      int
	DataPath string
	// Nodes are all nodes, this one too where that is known.
	Nodes []Node
}

// Node is one node, and what this node knows of it as a peer.
type Node struct {
	control.Record
	Peer control.Peer
	// Unused says that weftd does not use it as a peer.
	Unused bool
}

// setPeer names the node as the peer is called.
func (n *Node) setPeer(p control.Peer) {
	n.Peer, n.Name, n.Node, n.Unused = p, p.Name, p.NodeID, false
}

// Learn asks the weftd behind socket, and where that does not answer, the state that it left and the store.
func Learn(ctx context.Context, socket string, environ []string) (Known, error) {
	r := doctor.Request{Socket: socket, Environ: environ, Offline: true}
	f := doctor.Know(ctx, r)
	if !f.Daemon.Answers() && len(f.Network.Records) == 0 {
		r.Offline = false
		f = doctor.Know(ctx, r)
	}
	k := Known{Running: f.Daemon.Answers(), Config: f.Network.Network, Own: f.Network.Own,
		Under: f.Links.Underlay}
	st := f.Daemon.Status
	switch {
	case !k.Running && len(f.Network.Records) == 0:
		return k, fmt.Errorf("%w; and without it no node is known: neither the state that it left in --cache-dir "+
			"nor the store says of any (weft doctor says why)", f.Daemon.Err)
	case !k.Running:
		k.withoutWeftd(f)
		return k, nil
	case st.Lease == nil:
		return k, errors.New("this node has no subnet yet, and so no way to another: weft status says what it " +
			"waits for")
	case !st.Ready:
		k.Notes = append(k.Notes, "this node is not ready, so that what follows may be its own fault: weft status")
	}
	k.Source, k.Asks = "the running weftd", f.Daemon.Peers.Probing
	k.MTU, k.DataPath = st.Backend.MTU, cmp.Or(st.Backend.Path, kernelPath)
	for _, l := range f.Daemon.Leases.Leases {
		n := Node{Record: l, Unused: !l.Own}
		for _, p := range f.Daemon.Peers.Peers {
			if !l.Own && (slices.Contains(p.Subnets, l.Subnet) || slices.Contains(p.Subnets, l.IPv6Subnet)) {
				n.setPeer(p)
			}
		}
		k.Nodes = append(k.Nodes, n)
	}
	return k, nil
}

// withoutWeftd takes the nodes that are known without weftd.
func (k *Known) withoutWeftd(f *doctor.Facts) {
	why := "it does not run: systemctl status weftd"
	if errors.Is(f.Daemon.Err, control.ErrStuck) {
		why = f.Daemon.Err.Error()
	}
	k.Source, k.MTU, k.DataPath = f.Network.RecordsFrom, f.Network.MTU, userSpace
	tunnels := func(l doctor.Link) bool {
		return slices.Contains([]string{"vxlan", "wireguard", "ipip"}, l.Kind)
	}
	carrier := k.Config.Facts().Carrier
	if carrier == routing.CarrierKernel ||
		carrier == routing.CarrierEither && slices.ContainsFunc(f.Links.Links, tunnels) {
		k.DataPath = kernelPath
	}
	k.Notes = append(k.Notes, "weftd of this node does not answer ("+why+
		"), so that no other node's weftd can be asked")
	if k.DataPath != kernelPath {
		k.Notes = append(k.Notes, "it moves the packets here, and so nothing that goes through the overlay could "+
			"be asked: start it first")
	}
	for _, r := range f.Network.Records {
		n := Node{Record: records.From(r, r.Subnets == k.Own)}
		n.setPeer(control.PeerOf(r))
		if r.Weft != nil {
			n.Peer.MTU = r.Weft.MTU
		}
		k.Nodes = append(k.Nodes, n)
	}
}

// userSpace is a path that weft carries, of which no more is known.
const userSpace = "user-space"

// Want says what of a node is asked.
type Want struct {
	// Pod is an address of a pod; the zero Addr for the node alone.
	Pod netip.Addr
	// Family is 4 or 6; 0 for both.
	Family int
}

// Routes are those to the node, one for each family.
func (k Known) Routes(n Node, want Want) ([]Route, error) {
	var out []Route
	for _, six := range []bool{false, true} {
		if want.Pod.IsValid() && want.Pod.Is6() != six || want.Family != 0 && want.Family != family(six) {
			continue
		}
		if w, ok := k.way(n, six, want.Pod); ok {
			out = append(out, w)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case want.Family != 0:
		return nil, fmt.Errorf("there is no way to ask: %s and this node have no subnets of IPv%d both", n.Name,
			want.Family)
	}
	return nil, fmt.Errorf("there is no way to ask: %s and this node have no subnets of one family", n.Name)
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
		Path: diagnose.Path{Peer: n.Name, Local: n.Own, Weft: n.Peer.Weft, Carried: k.DataPath != kernelPath,
			Link: k.Under.Name, UDPPort: facts.Port, Controller: facts.Controller},
		Six: six, Backend: k.Config.BackendType, DataPath: k.DataPath, Direct: facts.Direct,
		AnswersPort: facts.Port != 0 && slices.Contains(n.Peer.Recv, "probe"), Not: map[diagnose.Layer]string{},
	}
	subnet, own := n.Subnet, k.Own.V4
	w.Under, w.UnderFrom = n.PublicIP, k.Under.Addr4
	if six {
		subnet, own = n.IPv6Subnet, k.Own.V6
		if n.PublicIPv6.IsValid() && k.Under.Addr6.IsValid() { // else its IPv6 subnet is reached over IPv4
			w.Under, w.UnderFrom = n.PublicIPv6, k.Under.Addr6
		}
	}
	if !subnet.IsValid() || !own.IsValid() {
		return w, false
	}
	if !w.Under.IsValid() { // IPv6 alone carries it
		w.Under, w.UnderFrom = n.PublicIPv6, k.Under.Addr6
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
	w.MTU, w.UnderMTU = k.MTU, k.Under.MTU
	if mtu := n.Peer.MTU; mtu > 0 && mtu < k.MTU {
		w.MTU, w.UnderMTU = mtu, k.Under.MTU-(k.MTU-mtu)
	}
	k.limits(&w, n, subnet)
	return w, true
}

// limits says which layers cannot be asked.
func (k Known) limits(w *Route, n Node, subnet netip.Prefix) {
	through := ""
	for _, r := range n.Peer.Reached {
		switch {
		case r.Subnet != subnet:
		case r.How == routing.HowRoute.String():
			w.UDPPort, w.Protocol = 0, 0 // its packets go without the tunnel
		case r.How == routing.HowSkipped.String():
			through = "this node does not reach that subnet: " + r.Reason
			w.Unused = through
		}
	}
	switch {
	case w.Local, through != "":
	case n.Unused:
		through = "this node does not use its record, for the reason that weft status and weft lease list say"
		w.Unused = through
	case !k.Running && k.DataPath != kernelPath:
		through = "this node's weftd, which moves the packets, does not answer"
	}
	if through != "" {
		for _, l := range []diagnose.Layer{diagnose.DataPlane, diagnose.Daemon, diagnose.Bridge, diagnose.Pod} {
			w.Not[l] = through
		}
		return
	}
	answers := func(x control.Probe) bool { return x.By == byUDP && x.Address == w.Overlay }
	switch {
	case !k.Running:
		w.Not[diagnose.Daemon] = "only this node's weftd can ask it, and that does not answer"
	case !n.Peer.Weft:
		w.Not[diagnose.Daemon] = "it does not run weft, and flannel answers no questions"
	case k.Config.Facts().Carrier == routing.CarrierOthers:
		w.Not[diagnose.Daemon] = "with backend " + k.Config.BackendType + " nodes do not ask each other"
	case !k.Asks:
		w.Not[diagnose.Daemon] = "this node asks nobody (--probe=false, or Backend.Probe)"
	case !slices.ContainsFunc(n.Peer.Probes, answers):
		w.Not[diagnose.Daemon] = "its record names no port for questions: it runs with --probe=false, or an " +
			"older weft"
	}
}

package diagnose

import (
	"net/netip"
	"slices"
	"strings"

	"weft/cmd/internal/control"
	"weft/routing"
	"weft/routing/probe"
)

// Peers fills in what is likely, and what tells, for each peer that weftd says is not well.
func Peers(st control.Status, all *control.Peers) {
	for i := range all.Peers {
		p := &all.Peers[i]
		for k := range p.Probes {
			x := &p.Probes[k]
			x.Likely, x.Look, x.Causes = "", "", nil
			if f, ok := Probe(st, *p, *x, Neighbour{}); ok {
				x.Likely, x.Look, x.Causes = f.Likely(), f.Look(), f.Codes()
			}
		}
	}
}

// Probe says what follows from the probes of one address of a peer, and from the next hop to it if somebody
// looked; ok is false if nothing is wrong.
func Probe(st control.Status, p control.Peer, x control.Probe, n Neighbour) (f Finding, ok bool) {
	w := pathTo(st, p, x.Address)
	w.Neighbour = n
	switch {
	case x.Answers == "no":
		fact := silence(x.Silence, x.Unsent, w, x.Address)
		if u := p.Unreachable; u != nil && u.Last.After(x.LastAnswer) &&
			(fact.Layer == Underlay || fact.Layer == Port) {
			fact = rejected(p, w.UnderFrom)
		}
		return Of(w, fact), true
	case x.Answers != "yes":
	case x.Lossy:
		return Of(w, Fact{Layer: DataPlane, State: Lossy, To: x.Address, Probed: true}), true
	case x.LargeLost:
		headers := max(0, st.Underlay.MTU-st.Backend.MTU)
		return Of(w, Fact{Layer: Port, State: Narrow, To: x.Address, MTU: x.PathMTU + headers,
			Lost: st.Backend.MTU + headers, Probed: true}), true
	}
	return f, false
}

// Unreachable says what follows from what ICMP said of datagrams to a peer; ok is false if it said nothing
// since the peer last answered.
func Unreachable(st control.Status, p control.Peer) (f Finding, ok bool) {
	if p.Unreachable == nil || slices.ContainsFunc(p.Probes, func(x control.Probe) bool {
		return x.LastAnswer.After(p.Unreachable.Last)
	}) {
		return f, false
	}
	w := pathTo(st, p, netip.Addr{})
	return Of(w, rejected(p, w.UnderFrom)), true
}

func rejected(p control.Peer, own netip.Addr) Fact {
	u := p.Unreachable
	f := Fact{Layer: Port, State: Refused, To: p.Address, Said: &Said{By: u.By, Kind: Kind(u.Says),
		Text: "ICMP " + u.Says}}
	if u.By == own { // the kernel's, which found no neighbour
		f.Layer, f.State, f.Said.By = Underlay, Unsent, netip.Addr{}
	}
	return f
}

// UnderlayOf is the address of a peer on the underlay.
func UnderlayOf(p control.Peer) netip.Addr {
	if p.Address.IsValid() {
		return p.Address
	}
	for _, y := range p.Reached { // the kernel moves the packets
		if y.Via.IsValid() {
			return y.Via
		}
	}
	return netip.Addr{}
}

// pathTo is the way to an address of a peer, as the running weftd has it.
func pathTo(st control.Status, p control.Peer, to netip.Addr) Path {
	w := Path{
		Peer: p.Name, Weft: p.Weft, Carried: p.Path != "kernel" && p.Path != "command",
		UnderFrom: st.Underlay.Address, Link: st.Underlay.Link, UDPPort: uint16(st.Backend.Port),
	}
	if p.Address.Is6() {
		w.UnderFrom = st.Underlay.IPv6Address
	}
	w.Under = UnderlayOf(p)
	for _, y := range p.Reached {
		if y.Subnet.Masked().Addr() == to && y.How == routing.HowRoute.String() {
			w.UDPPort = 0 // its packets go without the tunnel
		}
	}
	if st.Backend.Type == "ipip" {
		w.UDPPort, w.Protocol = 0, 4
	}
	if st.Lease != nil {
		w.From = st.Lease.Subnet.Masked().Addr()
		if to.Is6() {
			w.From = st.Lease.IPv6Subnet.Masked().Addr()
		}
	}
	return w
}

// Silence is what follows from how a node, of which no more is known, is silent for another.
func Silence(w Path, word string) Finding { return Of(w, silence(word, "", w, w.Under)) }

// silence is the fact that a word for silence stands for. A probe asks the layers from the highest, and so
// tells the first that does not answer.
func silence(word, unsent string, w Path, to netip.Addr) Fact {
	if w.Under.IsValid() && (word == control.SilentUnderlay || word == control.SilentEverything ||
		word == control.SilentHeard) {
		to = w.Under
	}
	f := Fact{Layer: Port, State: Silent, To: to, Probed: true}
	switch word {
	case control.SilentUnsendable:
		f.Layer, f.State = Daemon, Unsent
		f.Said = &Said{Text: "it refuses to send there"}
		if unsent != "" {
			f.Said.Text = unsent
		}
		if unsent == probe.OwnFirewall {
			f.Said.Kind = KindProhibited
		}
		if strings.Contains(unsent, "unreachable") {
			f.Said.Kind = KindNet
		}
	case control.SilentRefused:
		f.Layer, f.State = Daemon, Refused
	case control.SilentKernel:
		f.Layer = Daemon
	case control.SilentHeard:
		f.Heard = true
	case control.SilentUnderlay:
		f.UnderlayAnswers = true
	case control.SilentEverything:
		f.Layer = Underlay
	}
	return f
}

package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/cmd/internal/control"
	"weft/routing/hostrules"
	"weft/tunnel"
)

func firewallChecks() []Check {
	return []Check{
		{"firewall-input", "whether a firewall drops peers' datagrams to the overlay's port", checkInput},
		{"firewall-output", "whether a firewall of this host drops datagrams to peers", checkOutput},
		{"firewall-forward", "whether a firewall drops packets between pods and the overlay", checkForward},
	}
}

// Firewall is what the host's firewalls would do with packets that nobody has sent.
type Firewall struct {
	// Asked says that there was a packet to ask about.
	Asked bool
	Err   error
	// Input and Output are about datagrams of the overlay, Forward about packets between pods.
	Input, Output, Forward []Blocked
}

// Blocked is a packet that a firewall drops.
type Blocked struct {
	hostrules.Packet
	hostrules.Barrier
	// AnswersPass says that only what begins a flow is dropped.
	AnswersPass bool
}

// mostAsked bounds for how many peers the firewalls are asked.
const mostAsked = 16

// packets are those that the firewalls are asked about: from some peers to the overlay's port and to theirs, and between pods of this
// node and those peers'.
func (f *Facts) packets() (input, output, forward []hostrules.Packet) {
	const udp, tcp, client, server = 17, 6, 40000, 80
	protocol := cmp.Or(f.Port.Protocol, udp)
	under := f.Links.Underlay
	inner, pods := under.Name, f.podsLink()
	for _, l := range f.overlayLinks() {
		if strings.HasPrefix(l.Name, "flannel") {
			inner = l.Name
		}
	}
	for i, p := range f.peers() {
		if i == mostAsked {
			break
		}
		for _, x := range []struct{ src, dst netip.Addr }{{p.PublicIP, under.Addr4}, {p.PublicIPv6, under.Addr6}} {
			port := f.Port.Number
			if x.src.Is6() && f.Port.Number6 != 0 {
				port = f.Port.Number6
			}
			if (port != 0 || f.Port.Protocol != 0 && x.src.Is4()) && x.src.IsValid() && x.dst.IsValid() {
				input = append(input, hostrules.Packet{Hook: hostrules.HookInput, In: under.Name, Src: x.src, Dst: x.dst, Protocol: protocol, SrcPort: port, DstPort: port})
				out := cmp.Or(f.Links.To[x.src].Link, under.Name)
				output = append(output, hostrules.Packet{Hook: hostrules.HookOutput, Out: out, Src: x.dst, Dst: x.src, Protocol: protocol, SrcPort: port, DstPort: port})
			}
		}
		for _, x := range []struct{ theirs, ours netip.Prefix }{{p.V4, f.Network.Own.V4}, {p.V6, f.Network.Own.V6}} {
			if !x.theirs.IsValid() || !x.ours.IsValid() || pods == "" {
				continue
			}
			there, here := x.theirs.Masked().Addr().Next().Next(), x.ours.Masked().Addr().Next().Next()
			forward = append(forward,
				hostrules.Packet{Hook: hostrules.HookForward, In: inner, Out: pods, Src: there, Dst: here, Protocol: tcp, SrcPort: client, DstPort: server},
				hostrules.Packet{Hook: hostrules.HookForward, In: pods, Out: inner, Src: here, Dst: there, Protocol: tcp, SrcPort: client, DstPort: server})
		}
	}
	return input, output, forward
}

// podsLink is the bridge of this node's pods, or what they have in its place; "" if there is none yet, and none where pods are attached directly.
func (f *Facts) podsLink() (name string) {
	for _, l := range f.Links.Links {
		if l.Alias != ownAlias && slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return f.ownSubnet(p.Masked()) }) {
			name = l.Name
		}
	}
	return name
}

// readFirewall asks, and remembers for each chain the first packet that it drops.
func readFirewall(f *Facts) Firewall {
	input, output, forward := f.packets()
	out := Firewall{Asked: len(input)+len(forward) > 0}
	for _, q := range []struct {
		packets []hostrules.Packet
		to      *[]Blocked
	}{{input, &out.Input}, {output, &out.Output}, {forward, &out.Forward}} {
		for _, p := range q.packets {
			barriers, err := hostrules.Barriers(p)
			if err != nil {
				out.Err = err
			}
			for _, b := range barriers {
				if slices.ContainsFunc(*q.to, func(x Blocked) bool { return x.Barrier == b }) {
					continue
				}
				answer := p
				answer.Answer = true
				still, err := hostrules.Barriers(answer)
				*q.to = append(*q.to, Blocked{p, b, err == nil && !slices.Contains(still, b)})
			}
		}
	}
	return out
}

func checkInput(f *Facts) []Finding {
	w := f.Firewall
	switch {
	case w.Err != nil && len(w.Input) == 0:
		return one(Unknown, "%v", w.Err)
	case !w.Asked:
		return one(Unknown, "no peer is known whose datagrams could be dropped")
	case f.Port.Number == 0 && f.Port.Protocol == 0:
		return one(OK, "backend %s has no port", f.Network.BackendType)
	}
	var out []Finding
	for _, b := range w.Input {
		if f.raw() {
			out = append(out, says(Note, "%s %s from %s to %s: path raw takes them before, the other paths would not get them", b.Barrier, b.Plural(), b.Src, b.Target()).
				about(b.Table+" "+b.Chain).do("%s", b.Allow(b.Packet)))
			continue
		}
		v, what := Fault, "what peers send does not come in"
		if b.AnswersPass {
			what = "what peers send comes in only where it answers this node's own datagrams"
			if f.answering(b.Src) {
				v = Warning
			}
		}
		out = append(out, says(v, "%s %s from %s to %s: %s", b.Barrier, b.Plural(), f.called(b.Src), b.Target(), what).
			about(b.Table+" "+b.Chain).because("%s", owner(b.Barrier)).do("%s", b.Allow(b.Packet)))
	}
	return orOK(out, "none drops them for certain")
}

// raw says that weftd's datagrams pass beside the firewalls.
func (f *Facts) raw() bool {
	return f.Daemon.answers() && f.Daemon.Status.Backend.Path == tunnel.PathRaw.String()
}

// called is a peer's address, with its name.
func (f *Facts) called(a netip.Addr) string {
	for _, p := range f.peers() {
		if p.PublicIP == a || p.PublicIPv6 == a {
			return fmt.Sprintf("%s (%s)", a, nameOf(p))
		}
	}
	return a.String()
}

// answering says that the peer at an address of the underlay answers weftd's questions through the overlay.
func (f *Facts) answering(a netip.Addr) bool {
	return slices.ContainsFunc(f.Daemon.Peers.Peers, func(p control.Peer) bool {
		return p.Address == a && len(p.Probes) > 0 && !slices.ContainsFunc(p.Probes, func(x control.Probe) bool { return x.Answers != "yes" })
	})
}

func checkOutput(f *Facts) []Finding {
	w := f.Firewall
	switch {
	case w.Err != nil && len(w.Output) == 0:
		return one(Unknown, "%v", w.Err)
	case !w.Asked:
		return one(Unknown, "no peer is known to whom datagrams could be dropped")
	case f.Port.Number == 0 && f.Port.Protocol == 0:
		return one(OK, "backend %s has no port", f.Network.BackendType)
	}
	var out []Finding
	for _, b := range w.Output {
		v, what := Fault, "what this node sends does not leave"
		if f.raw() {
			v, what = Note, "path raw sends beside it, the other paths could not send"
		} else if f.answering(b.Dst) {
			v, what = Warning, "what this node sends first does not leave"
		}
		out = append(out, says(v, "%s %s to %s of %s: %s", b.Barrier, b.Plural(), b.Target(), f.called(b.Dst), what).
			about(b.Table+" "+b.Chain).because("somebody forbade this host to send them").do("%s", b.Allow(b.Packet)))
	}
	return orOK(out, "none drops them for certain")
}

func owner(b hostrules.Barrier) string {
	if b.Owner == "" {
		return "the firewall was set up for other services only"
	}
	return fmt.Sprintf("%s was set up for other services only", b.Owner)
}

func checkForward(f *Facts) []Finding {
	w := f.Firewall
	switch {
	case w.Err != nil && len(w.Forward) == 0:
		return one(Unknown, "%v", w.Err)
	case !w.Asked:
		return one(Unknown, "no peer is known whose packets could be dropped")
	case len(w.Forward) == 0 && f.podsLink() == "":
		return one(Unknown, "no link has an address of this node's subnet: by which one packets of pods pass is not known")
	}
	var out []Finding
	for _, b := range w.Forward {
		if !f.Daemon.answers() && f.Settings.Rules.ForwardRules && b.Policy && strings.HasPrefix(b.Firewall, "iptables") {
			continue // weftd adds rules that accept them as soon as it runs
		}
		cause := owner(b.Barrier)
		if !f.Settings.Rules.ForwardRules {
			cause = "weftd's own accepting rules are turned off (--iptables-forward-rules=false), and nobody else's are there"
		}
		out = append(out, says(Fault, "%s packets that come in by %s and leave by %s, as from %s to %s", b.Barrier, b.In, b.Out, b.Src, b.Dst).
			about(b.Table+" "+b.Chain).because("%s", cause).do("%s", b.Allow(b.Packet)))
	}
	return orOK(out, "none drops them for certain")
}

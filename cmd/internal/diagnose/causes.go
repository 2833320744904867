package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// list collects causes, the likeliest first.
type list struct {
	p   Path
	all []Cause
}

// here adds a cause that a command on the asking node tells, and there one that a command on the peer does.
func (l *list) here(code Code, cause, tells, command string, a ...any) *Cause {
	l.all = append(l.all, Cause{Code: code, Cause: cause, Command: fmt.Sprintf(command, a...), Where: l.p.Here,
		Tells: tells})
	return &l.all[len(l.all)-1]
}

func (l *list) there(code Code, cause, tells, command string, a ...any) *Cause {
	c := l.here(code, cause, tells, command, a...)
	c.Where = "on " + l.p.Peer
	return c
}

// Of says what follows from a fact.
func Of(p Path, f Fact) Finding {
	if p.Here == "" {
		p.Here = "here"
	}
	l := &list{p: p}
	switch {
	case f.Layer != Underlay && p.Unused != "":
		l.here("not-used", p.Unused, "the reason beside the peer", "weft peers; weft doctor").Observed = true
	case f.State != Lossy && f.State != Narrow && f.Layer != Bridge && f.Layer != Pod && l.onLink():
	case f.State == Lossy:
		l.lossy(f)
	case f.State == Narrow:
		l.narrow(f)
	case f.Layer == Underlay:
		l.underlay(f)
	case f.Layer == Port:
		l.port(f)
	case f.Layer == DataPlane:
		l.dataPlane(f)
	case f.Layer == Daemon:
		l.daemon(f)
	case f.Layer == Bridge:
		l.bridge()
	case f.Layer == Pod:
		l.pod(f)
	}
	if i := slices.IndexFunc(l.all, func(c Cause) bool { return c.Observed }); i >= 0 {
		l.all = l.all[i : i+1]
	}
	return Finding{Fact: l.fact(f), Causes: l.all}
}

// fact is what was observed, in words.
func (l *list) fact(f Fact) string {
	switch {
	case f.State == Lossy:
		return "packets are lost"
	case f.State == Narrow:
		return fmt.Sprintf("packets of %d bytes pass, and those of %d are lost without a word", f.MTU, f.lost())
	case f.Said != nil:
		return f.Said.String()
	case f.State == Refused:
		return "its host carries packets, and says that nothing listens for the questions of weftd"
	case f.Layer == Underlay:
		return "it does not answer on the underlay either"
	case f.Layer == Daemon:
		return "its host carries packets, and its weftd does not answer"
	case f.Heard:
		return "what it sends arrives, and what this node sends does not get an answer"
	case f.UnderlayAnswers:
		return "its host answers on the underlay, and nothing comes through the overlay"
	}
	return "it does not answer"
}

const (
	rules     = "nft list ruleset"
	rejecting = rules + " | grep -n reject; iptables-save | grep REJECT"
	weftds    = "systemctl status weftd"
	stopped   = "its weftd is not running"
	grows     = "errors or drops that grow"
	rejects   = "a rule that rejects it"
	otherWay  = "another device than the overlay's"
)

func (l *list) lossy(f Fact) {
	w := l.p
	if f.Layer == Bridge || f.Layer == Pod {
		l.there("bridge-drops", "the bridge's or the pod's link drops", "drops that grow", "ip -s link")
		l.there("pod-overloaded", "the pod has no processor to run on, or its queue overflows",
			"a load near or above its limit", "top; ip -s link")
		return
	}
	links := func() {
		l.here("link-drops", "a link or a queue of this host drops", grows,
			"ip -s link show %s; ethtool -S %s | grep -iE 'err|drop'", cmp.Or(w.Link, "LINK"), cmp.Or(w.Link, "LINK"))
		l.there("peer-link-drops", "a link or a queue of that host drops", grows,
			"ip -s link; ethtool -S LINK | grep -iE 'err|drop'")
		l.here("hop-drops", "a switch or router between drops", "the first hop from which on a part is lost",
			"mtr -n -c 50 %v", w.under(f))
	}
	if f.Layer == Underlay || f.Probed {
		links()
	}
	if f.Layer != Underlay {
		l.there("receive-overflow", "its receive queue overflows, or its data plane has no processor to run on",
			"drops by reason that grow, or lost in the kernel", "weft status")
	}
	const limit = "a rule with limit or numgen"
	l.here("limit", "a rule drops a part of the packets, as a limit does", limit,
		rules+"; iptables-save | grep -iE 'limit|statistic'")
	l.there("peer-limit", "the same on that host", limit, rules+"; iptables-save | grep -iE 'limit|statistic'")
	if f.Layer != Underlay {
		l.here("udp-policed", "a device between drops UDP when there is much of it",
			"what leaves here and does not arrive there", "tcpdump -ni %s %s and host %v", cmp.Or(w.Link, "any"),
			w.dump(), w.Under)
		if !f.Probed { // the few questions to the underlay may have passed by chance
			links()
		}
	}
}

func (l *list) narrow(f Fact) {
	w := l.p
	if f.Layer != Underlay && f.Layer != Port && (f.UnderlayAnswers || !w.Under.IsValid()) {
		l.here("large-udp-dropped", "a device on the way drops large datagrams of the overlay only, as some "+
			"firewalls do",
			"large datagrams leave here and do not arrive there",
			"tcpdump -ni %s %s and host %v and greater %d", cmp.Or(w.Link, "any"), w.dump(), w.Under, f.MTU)
		l.there("peer-overlay-mtu", "the overlay's device, or the bridge, there has a smaller MTU",
			"an MTU below this node's overlay", "ip link show; weft status")
		return
	}
	to := w.under(f)
	base := 20 + 8 // of an ICMP echo request, which ping -s does not count
	if to.Is6() {
		base += 20
	}
	l.here("path-mtu", "a device on the way carries less than this host's link, and drops without an ICMP "+
		"message",
		"the first size passes and the second does not; tracepath names the hop",
		"ping -c1 -M do -s %d %v; ping -c1 -M do -s %d %v; tracepath -n %v", f.MTU-base, to, f.lost()-base, to, to)
	l.here("icmp-dropped", `a firewall drops the ICMP messages "fragmentation needed" that say so`,
		"a rule that drops icmp, or icmpv6 packet-too-big", rules+"; iptables-save | grep -i icmp")
	l.there("peer-mtu", "the link of that host has a smaller MTU than this one's",
		"an MTU below that of this host's link",
		"ip link show")
}

func (l *list) underlay(f Fact) {
	w, to := l.p, text(f.To)
	down := func(found, tells, command string, a ...any) { l.here("host-down", found, tells, command, a...) }
	moved := func() {
		l.there("address-changed", "the host has another address now", "another address than "+to,
			"ip -br addr; weft status (at its console)")
	}
	switch said := f.Said; {
	case f.State == Unsent && said.Kind == KindHost && w.Neighbour.At.IsValid() && w.Neighbour.At != f.To:
		l.here("gateway-silent", fmt.Sprintf("nobody on %s answers ARP for %v, by which this host sends to it",
			w.Neighbour.Link, w.Neighbour.At), "FAILED or INCOMPLETE", "ip neigh show %v; ip route get %s",
			w.Neighbour.At, to)
	case f.State == Unsent && said.Kind == KindHost:
		down("its host is down, or its link: nobody on this link has the address", "FAILED or INCOMPLETE",
			"ip neigh show %s", to)
		moved()
		l.here("wrong-link", "the link is the wrong one for that network, or in another VLAN",
			"another link than the peers'",
			"ip route get %s; ip -br link; weft doctor", to)
	case f.State == Unsent && said.Kind == KindNet:
		l.here("no-route", "this host has no route there, or its link or address is gone",
			"unreachable, DOWN or no address", "ip route get %s; ip -br addr; weft status", to).Observed = true
	case f.State == Unsent:
		l.cannotSend(f)
	case f.State == Refused && said.Kind == KindProhibited:
		l.here("forbidden", fmt.Sprintf("a firewall at %v forbids it", said.By), "the last hop that answers",
			"tracepath -n %s", to).Observed = true
	case f.State == Refused:
		down(fmt.Sprintf("its host is down, or its link: %v, the router before it, does not reach it", said.By),
			"the router answers and the host does not", "ping -c3 %v", said.By)
		l.here("router-route", "the router has no route to that network", "the last hop that answers",
			"tracepath -n %s", to)
		moved()
	case w.Neighbour.Asked && w.Neighbour.At == w.Under && len(w.Neighbour.Answers) == 0:
		down("its host is down, or its link: nobody on "+w.Neighbour.Link+" answers ARP for the address",
			"FAILED or INCOMPLETE", "ip neigh show %s", to)
		moved()
		l.here("network-broken", "the link is cut between here and there, as in a switch or a VLAN",
			"other hosts of this link that do not answer either", "ip neigh show dev %s", w.Neighbour.Link)
	default:
		if len(w.Neighbour.Answers) == 0 || w.Neighbour.At != w.Under {
			down("its host is down, or its link", "FAILED or INCOMPLETE (REACHABLE: it lives, and a firewall drops)",
				"ping -c3 %s; ip neigh show %s; ip route get %s", to, to, to)
			l.here("network-broken", "the network between is broken, or a router's route",
				"the hop after which nothing answers",
				"tracepath -n %s", to)
		}
		l.there("peer-firewall", "a firewall drops both ICMP and the overlay's port",
			"packets arrive: then it is its own rules", "tcpdump -ni any host %s; "+rules, w.me())
		l.neighbour()
		l.there("no-way-back", "that host has no way back: a route or a neighbour entry for this one is wrong there",
			"an error, another link, or PERMANENT", "ip route get %s; ip neigh show %s", w.me(), w.me())
		l.reversePath()
		l.here("record-old", "the record's address is not that of the host any more",
			"another address than the host's",
			"weft lease list %s", w.Peer)
	}
}

// cannotSend is for an error of the own kernel. It says "operation not permitted" only for what a filter of
// this host drops.
func (l *list) cannotSend(f Fact) {
	match := "nft list ruleset; iptables -S OUTPUT"
	if n := max(l.p.UDPPort, uint16(l.p.Protocol)); f.Layer == Port && n != 0 {
		match += fmt.Sprintf(" | grep -e %d -e REJECT -e DROP", n)
	}
	own := l.here("own-output", "a rule of this host for OUTPUT refuses it", "a rule that drops or rejects it",
		"%s", match)
	if f.Said != nil && f.Said.Kind == KindProhibited {
		own.Cause += " (" + f.Said.Text + ")"
		own.Observed = true
		return
	}
	l.here("no-source", "this host has no usable route or address for it",
		"an error, or a source that is not this host's",
		"ip route get %v; weft peers %s; weft status", f.To, l.p.Peer)
}

// lost is a size that did not pass.
func (f Fact) lost() int { return cmp.Or(f.Lost, f.MTU+1) }

// gone is for a host that says that nothing takes the overlay's packets.
func (l *list) gone() {
	w := l.p
	switch {
	case w.Protocol != 0 && w.Weft && w.Carried:
		l.there("weftd-stopped", stopped, "inactive, or no raw socket of the protocol", weftds+"; ss -wlnp")
	case w.Protocol != 0:
		l.there("device-gone", "the overlay's device is gone there, so that nobody takes the protocol",
			"no such device, or DOWN",
			"ip -d link show type ipip")
	case w.Weft && w.Carried:
		l.there("weftd-stopped", stopped, "inactive, or nothing at the port", weftds+"; ss -lunp sport = :%d",
			w.UDPPort)
	default:
		l.there("device-gone", "the overlay's device is gone there, so that nobody has the port",
			"no such device, or another port", "ip -d link show type vxlan; ss -lun sport = :%d", w.UDPPort)
	}
	l.there("peer-rejects", "a rule there rejects the "+w.What()+", which looks the same from here", rejects,
		rejecting)
}

// dropped is for packets of the overlay of which nothing is heard.
func (l *list) dropped() {
	l.there("dropped", l.p.outer()+" is dropped on the way, or by a firewall of either host",
		"no packets of this node arrive: on the way; they do: its own rules, or the next cause",
		"tcpdump -ni any %s and host %s; "+l.rulesThere(), l.p.dump(), l.p.me())
}

// rulesThere shows the rules of the peer's host. Those of legacy iptables nft does not show, and weft doctor
// does.
func (l *list) rulesThere() string {
	if l.p.Weft {
		return "weft doctor; " + rules
	}
	return rules
}

func (l *list) ownRule() {
	l.here("own-rule", "a rule of this host drops it", "a rule that names it, or a policy of drop",
		"weft doctor; "+rules+"; iptables -S")
}

// neighbour is for packets that leave, and may have another MAC address than the next hop's.
func (l *list) neighbour() {
	if len(l.p.Neighbour.Answers) > 0 {
		return // and it is right
	}
	l.here("wrong-neighbour", "this host sends to a wrong MAC address, as a pinned neighbour entry has it",
		"PERMANENT, or a MAC address that is not the next hop's",
		"ip neigh show %v; ip route get %v", l.p.Under, l.p.Under)
}

func (l *list) notKnownThere() {
	l.there("not-known-there", "this node's record is not known there, or another",
		"this node is missing, or has another address", "weft peers")
}

// reversePath is for answers that come by another link than that on which this host sends.
func (l *list) reversePath() {
	l.here("rp-filter", "rp_filter of this host drops its answers, which come by another link than the one to it",
		"1 on the link by which they come; the counter grows, but not for ARP",
		"nstat -asz TcpExtIPReversePathFilter; sysctl -a 2>/dev/null | grep '\\.rp_filter'")
}

func (l *list) frozen() {
	l.there("weftd-frozen", "its weftd is stopped or frozen, so that it reads nothing",
		"not running, or no answer within seconds", weftds+"; weft status")
}

func (l *list) port(f Fact) {
	w := l.p
	switch said := f.Said; {
	case f.State == Unsent:
		l.cannotSend(f)
	case f.State == Refused && said.By == f.To && (said.Kind == KindPort || said.Kind == KindProtocol):
		l.gone()
	case f.State == Refused && said.By == f.To:
		l.there("peer-rejects", "its firewall rejects "+w.outer(), rejects,
			rejecting).Observed = said.Kind == KindProhibited
	case f.State == Refused && (said.Kind == KindHost || said.Kind == KindNet):
		l.here("router-route",
			fmt.Sprintf("%v does not reach the peer's host, which is down, or has no route to it", said.By),
			"the last hop that answers", "ping -c3 %v; tracepath -n %v", said.By, f.To).Observed = true
	case f.State == Refused:
		l.here("way-rejects", fmt.Sprintf("a firewall on the way, at %v, rejects %s", said.By, w.outer()),
			rejects+"; on a router, its own configuration", rejecting).Observed = said.Kind == KindProhibited
	case f.Heard:
		l.there("dropped-one-way", w.outer()+" is dropped on the way to it, or by its firewall",
			"no packets of this node: on the way; packets: its own rules for INPUT",
			"tcpdump -ni any %s and src host %s; "+l.rulesThere(),
			strings.Replace(w.dump(), "udp port", "udp dst port", 1),
			w.me())
		l.ownRule()
		if f.Probed { // which does not ask the underlay
			l.neighbour()
			if !w.Neighbour.At.IsValid() {
				l.here("no-route", "this host has no route to its address", "an error", "ip route get %v", w.Under)
			}
		}
	default:
		l.dropped()
		if w.Carried {
			l.frozen()
		} else { // the kernel carries packets on, whatever weftd does
			l.there("device-gone", "the overlay's device is down or gone there", "no such device, or DOWN",
				"ip -br link; weft status")
		}
		l.ownRule()
		l.notKnownThere()
	}
}

// input is for what the peer's host may drop once it has left the tunnel.
func (l *list) input() {
	l.there("peer-input", "its firewall drops what comes in by the overlay's device, or all ICMP",
		"a rule for INPUT that drops icmp, or a policy of drop",
		rules+"; iptables -S INPUT; sysctl net.ipv4.icmp_echo_ignore_all")
}

func (l *list) dataPlane(f Fact) {
	w := l.p
	route := func(code Code, cause string) *Cause {
		return l.here(code, cause, otherWay, "ip route get %v from %v; weft doctor", f.To, w.From)
	}
	switch said := f.Said; {
	case f.State == Unsent && said.Kind == KindProhibited:
		l.cannotSend(f)
	case f.State == Unsent:
		route("no-overlay-route", "this host has no route into the overlay, or another one in its place")
		l.here("own-output", "a rule of this host for OUTPUT refuses it", "a rule that drops or rejects",
			rules+"; iptables -S OUTPUT")
	case f.State == Refused && said.By == w.From:
		l.here("own-data-plane", "this node's own data plane does not know the peer, or does not reach it",
			"the reason beside the peer", "weft peers %s; weft status", w.Peer).Observed = true
	case f.State == Refused:
		left := fmt.Sprintf("the packet left the overlay, and %v rejects it", said.By)
		route("left-overlay", left).Observed = true
	case f.PortAnswers:
		route("other-route", "a route of this host, or of that one, leads the packets elsewhere")
		l.input()
		l.there("data-plane-drops", "the data plane there drops the packets", "drops by reason that grow",
			"weft status; weft capture --dropped")
		l.there("rp-filter", "answers are dropped by rp_filter, there or here", "1 on the overlay's device",
			"sysctl -a 2>/dev/null | grep '\\.rp_filter'")
	default:
		l.dropped()
		switch {
		case w.Weft && w.Carried:
			l.frozen()
		case w.Weft:
			l.there("device-gone", "the overlay's device is down or gone there, or has another VNI",
				"no such device, DOWN, or another id", "ip -d link show type vxlan; weft status")
		default:
			l.there("flanneld-stopped", "flanneld is stopped, or its device is gone", "inactive, or no such device",
				"systemctl status flanneld; ip -br link")
		}
		l.here("own-entries", "this host's forwarding entries, or its route, for the peer are not as weft wants "+
			"them", "a fault",
			"weft doctor; ip route get %v from %v", f.To, w.From)
		l.input()
	}
}

func (l *list) daemon(f Fact) {
	switch f.State {
	case Refused:
		l.there("weftd-stopped", stopped, "inactive or failed", weftds+"; journalctl -u weftd -n 50")
		l.there("no-probes", "it runs without probes", "--probe=false, or WEFTD_PROBE",
			"systemctl cat weftd; weft status")
	case Unsent:
		l.cannotSend(f)
	default:
		l.there("weftd-frozen", "its weftd is stopped or frozen: the kernel carries packets on, and it learns of "+
			"no change",
			"not running, no answer within seconds, or state T or D",
			weftds+"; weft status; ps -o pid,stat,wchan:20,cmd -C weftd")
		l.there("peer-input", "its firewall drops what comes in by the overlay: UDP port 8286",
			"a rule for INPUT that drops it, or a policy of drop", rules+"; iptables -S INPUT")
		l.notKnownThere()
	}
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return "ADDRESS"
	}
	return a.String()
}

// me is the asking node's address on the underlay.
func (w Path) me() string {
	if w.UnderFrom.IsValid() {
		return w.UnderFrom.String()
	}
	return "THIS-NODE"
}

// under is the peer's address on the underlay if it is known, else the one that was asked.
func (w Path) under(f Fact) netip.Addr {
	if w.Under.IsValid() {
		return w.Under
	}
	return f.To
}

// outer is what the overlay's packets are on the wire, and dump the same in tcpdump's words.
func (w Path) outer() string { return w.words("UDP port %d", "IP protocol %d", "what goes to it") }

func (w Path) dump() string { return w.words("udp port %d", "ip proto %d", "ip") }

// words says one of three things, with the number that it is about.
func (w Path) words(port, protocol, neither string) string {
	switch {
	case w.UDPPort != 0:
		return fmt.Sprintf(port, w.UDPPort)
	case w.Protocol != 0:
		return fmt.Sprintf(protocol, w.Protocol)
	}
	return neither
}

// What is the word for what has the overlay's packets on the wire.
func (w Path) What() string {
	if w.Protocol != 0 {
		return "protocol"
	}
	return "port"
}

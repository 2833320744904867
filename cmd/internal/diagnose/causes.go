package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/routing/probe"
)

// template is a cause with words in braces that are filled in from a Path and a Fact. there says that its
// command is for the peer.
type template struct {
	there                 bool
	cause, tells, command string
}

const (
	here, there = false, true
	grows       = "errors or drops that grow"
	rejecting   = "{rules} | grep -n reject; iptables-save | grep REJECT"
	rejects     = "a rule that rejects it"
	limits      = "{rules}; iptables-save | grep -iE 'limit|statistic'"
	otherWay    = "another device than the overlay's"
	watch       = "tcpdump -c 9 -ni any udp port {port}"
)

// templates are all causes that are known.
var templates = map[Code]template{
	"not-used": {here, "{unused}", "the reason beside the peer", "weft peers; weft doctor"},

	// The underlay and its hosts.
	"host-down": {here, "its host is down, or its link", "FAILED or INCOMPLETE (REACHABLE: it lives, and a " +
		"firewall drops)", "ping -c3 {to}; ip neigh show {to}; ip route get {to}"},
	"gateway-silent": {here, "nobody on {link} answers ARP for {next}, by which this host sends to it",
		"FAILED or INCOMPLETE", "ip neigh show {next}; ip route get {to}"},
	"address-changed": {there, "the host has another address now", "another address than {to}",
		"ip -br addr; weft status (at its console)"},
	"wrong-link": {here, "the link is the wrong one for that network, or in another VLAN",
		"another link than the peers'", "ip route get {to}; ip -br link; weft doctor"},
	"network-broken": {here, "the network between is broken, as a switch, a VLAN or a router's route",
		"the hop after which nothing answers, or other hosts of this link that do not either",
		"tracepath -n {to}{on link}"},
	"router-route": {here, "a router on the way does not reach it: it has no route, or that host is down",
		"the last hop that answers", "tracepath -n {to}"},
	"forbidden": {here, "a firewall at {by} forbids it", "the last hop that answers", "tracepath -n {to}"},
	"no-route": {here, "this host has no way to {under}{unrouted}",
		"an error, or a route of type blackhole, prohibit or unreachable",
		"ip route get {under}; ip route; ip -br addr"},
	"no-source": {here, "this host has no usable route or address for it",
		"an error, or a source that is not this host's", "ip route get {to}; weft peers {peer}; weft status"},
	"peer-firewall": {there, "a firewall drops both ICMP and the overlay's port",
		"packets arrive: then it is its own rules", "tcpdump -ni any host {me}; {rules}"},
	"wrong-neighbour": {here, "this host sends to a wrong MAC address, as a pinned neighbour entry has it",
		"PERMANENT, or a MAC address that is not the next hop's", "ip neigh show {next}; ip route get {under}"},
	"address-twice": {here, "more than one host has {next} on {link}",
		"the address, on a host that is not to have it",
		"ip -br addr | grep -wF {next}"},
	"no-way-back": {there, "that host has no way back: a route or a neighbour entry for this one is wrong there",
		"an error, another link, or PERMANENT", "ip route get {me}; ip neigh show {me}"},
	"rp-filter": {here, "rp_filter drops answers, which come by another link than the one to their sender",
		"1 on the link by which they come; the counter grows, but not for ARP",
		"nstat -asz TcpExtIPReversePathFilter; sysctl -a 2>/dev/null | grep '\\.rp_filter'"},
	"record-old": {here, "the record's address is not that of the host any more",
		"another address than the host's",
		"weft lease list {peer}"},

	// Loss and size.
	"link-drops": {here, "a link or a queue of this host drops", grows,
		"ip -s link show {link}; ethtool -S {link} | grep -iE 'err|drop'"},
	"peer-link-drops": {there, "a link or a queue of that host drops", grows,
		"ip -s link; ethtool -S LINK | grep -iE 'err|drop'"},
	"hop-drops": {here, "a switch or router between drops", "the first hop from which on a part is lost",
		"mtr -n -c 50 {under}"},
	"receive-overflow": {there, "its receive queue overflows, or its data plane has no processor to run on",
		"drops by reason that grow, or lost in the kernel", "weft status"},
	"limit": {here, "a rule drops a part of the packets, as a limit does", "a rule with limit or numgen",
		limits},
	"peer-limit": {there, "the same on that host", "a rule with limit or numgen", limits},
	"udp-policed": {here, "a device between drops UDP when there is much of it",
		"what leaves here and does not arrive there", "tcpdump -ni {dev} {dump} and host {under}"},
	"bridge-drops": {there, "the bridge's or the pod's link drops", "drops that grow", "ip -s link"},
	"pod-overloaded": {there, "the pod has no processor to run on, or its queue overflows",
		"a load near or above its limit", "top; ip -s link"},
	"path-mtu": {here, "a device on the way carries less than this host's link, and no ICMP message says so",
		"the first size passes and the second does not; tracepath names the hop",
		"ping -c1 -M do -s {size} {under}; ping -c1 -M do -s {more} {under}; tracepath -n {under}"},
	"icmp-dropped": {here, `a firewall drops the ICMP messages "fragmentation needed" that say so`,
		"a rule that drops icmp, or icmpv6 packet-too-big", "{rules}; iptables-save | grep -i icmp"},
	"peer-mtu": {there, "the link of that host has a smaller MTU than this one's",
		"an MTU below that of this host's link", "ip link show"},
	"large-udp-dropped": {here,
		"a device on the way drops large datagrams of the overlay only, as some firewalls do",
		"large datagrams leave here and do not arrive there",
		"tcpdump -ni {dev} {dump} and host {under} and greater {mtu}"},
	"peer-overlay-mtu": {there, "the overlay's device, or the bridge, there has a smaller MTU",
		"an MTU below this node's overlay", "ip link show; weft status"},

	// The overlay's port and what is behind it.
	"own-output": {here, "a rule of this host for OUTPUT refuses it", "a rule that drops or rejects it",
		"{rules}; iptables -S OUTPUT{match}"},
	"own-rule": {here, "a rule of this host drops it", "a rule that names it, or a policy of drop",
		"weft doctor; {rules}; iptables -S"},
	"weftd-stopped": {there, "its weftd is not running", "inactive or failed, or nothing at the port",
		"systemctl status weftd; journalctl -u weftd -n 50; {sockets}"},
	"weftd-frozen": {there, "its weftd is stopped or frozen: it reads nothing, and learns of no change",
		"not running, no answer within seconds, or state T or D",
		"systemctl status weftd; weft status; ps -o pid,stat,wchan:20,cmd -C weftd"},
	"flanneld-stopped": {there, "flanneld is stopped, or its device is gone", "inactive, or no such device",
		"systemctl status flanneld; ip -br link"},
	"no-probes": {there, "it runs without probes", "--probe=false, or WEFTD_PROBE",
		"systemctl cat weftd; weft status"},
	"device-gone": {there, "the overlay's device is down or gone there, or has another port or id",
		"no such device, DOWN, or another port or id", "ip -d link show type {kind}; weft status; {sockets}"},
	"peer-rejects": {there, "a rule there rejects {outer}, which looks the same from here", rejects, rejecting},
	"way-rejects": {here, "a firewall on the way, at {by}, rejects {outer}",
		rejects + "; on a router, its own configuration", rejecting},
	"dropped": {there, "{outer} is dropped on the way, or by a firewall of either host",
		"no packets of this node arrive: on the way; they do: its own rules, or the next cause",
		"tcpdump -ni any {dump} and host {me}; {its rules}"},
	"dropped-one-way": {there, "{outer} is dropped on the way to it, or by its firewall",
		"no packets of this node: on the way; packets: its own rules for INPUT",
		"tcpdump -ni any {dump out} and src host {me}; {its rules}"},
	"not-known-there": {there, "this node's record is not known there, or another",
		"this node is missing, or has another address", "weft peers"},
	"peer-input": {there,
		"its firewall drops what comes in by the overlay: ICMP, UDP port 8286, or one node's only",
		"a rule for INPUT that drops it, or a policy of drop",
		"{rules}; iptables -S INPUT; sysctl net.ipv4.icmp_echo_ignore_all"},
	"data-plane-drops": {there, "the data plane there drops the packets", "drops by reason that grow",
		"weft status; weft capture --dropped"},
	"no-overlay-route": {here, "this host has no route into the overlay, or another one in its place", otherWay,
		"ip route get {to} from {from}; weft doctor"},
	"other-route": {here, "a route of this host, or of that one, leads the packets elsewhere", otherWay,
		"ip route get {to} from {from}; weft doctor"},
	"left-overlay": {here, "the packet left the overlay, and {by} rejects it", otherWay,
		"ip route get {to} from {from}; weft doctor"},
	"own-data-plane": {here, "this node's own data plane does not know the peer, or does not reach it",
		"the reason beside the peer", "weft peers {peer}; weft status"},
	"own-entries": {here,
		"this host's forwarding entries, or its route, for the peer are not as weft wants them",
		"a fault", "weft doctor; ip route get {to} from {from}"},

	// The bridge and pods.
	"bridge-gone": {there, "the bridge is gone, or has another address: that of a former subnet",
		"no device with {gateway}", "ip -br addr | grep -F {gateway}/"},
	"no-pods": {there, "no pod runs there: the bridge comes with the first", "no pod on that node",
		"kubectl get pods -A -o wide --field-selector spec.nodeName={peer}"},
	"no-bridge": {there, "pods there have no bridge, and the pod itself is broken",
		"a route to the pod by a device of its own", "ip route get {pod}"},
	"peer-forward": {there, "its firewall drops what comes in by the overlay",
		"a rule for INPUT or FORWARD that drops, or a policy of drop", "{rules}; iptables -S"},
	"no-such-pod": {there, "there is no pod with the address (any more)", "FAILED or INCOMPLETE",
		"ip neigh show {to}; kubectl get pods -A -o wide | grep -wF {to}"},
	"policy": {there, "a NetworkPolicy, or a rule of that host for FORWARD, drops it",
		"a rule or chain that drops",
		"kubectl get networkpolicy -A; iptables -S FORWARD; {rules}"},
	"pod-link-down": {there, "its link to the bridge, or the bridge, is down", "DOWN", "ip -br link"},
	"forwarding-off": {there, "forwarding is off there, for all or for the bridge", "0",
		"sysctl -a 2>/dev/null | grep -E 'ip_forward |\\.forwarding'"},
	"pod-mute": {there, "the pod drops ICMP, or its route back is missing",
		"no answer from inside either, or no default route",
		"nsenter -t PID -n ip route (PID of the pod's process)"},

	// What two nodes, or one and all the others, say of each other.
	"own-fault": {here, "this node's own link, firewall or settings", "a fault of this host",
		"weft doctor --all"},
	"each-of-them": {here, "a fault of each of them", "not the same of each", "weft peers"},
	"record-unseen": {here, "it does not see that node's record: its store is another, or behind",
		"the record is missing", "weft lease list"},
	"record-refused": {here, "it refuses that node's record, as with another network config", "the reason",
		"weft status; weft peers"},
	"just-begun": {here, "this has just begun or ended", "another answer", "sleep 10; weft matrix"},
	"other-link": {here, "a silent peer's datagrams come by another link than {link}",
		"a peer's address, In on another link", watch},
	"pod-on-port": {here, "a pod sends to the overlay's port", "a pod's address", watch},
}

// Of says what follows from a fact.
func Of(p Path, f Fact) Finding {
	codes, observed := p.causes(f)
	out := Finding{Fact: f.words()}
	fill := p.fill(f)
	for _, c := range codes {
		x := p.cause(c, fill)
		x.Observed = observed
		out.Causes = append(out.Causes, x)
	}
	if observed {
		out.Causes[0] = p.Neighbour.shown(out.Causes[0])
	}
	return out
}

// cause makes a cause of its template.
func (p Path) cause(c Code, fill *strings.Replacer) Cause {
	t := templates[c]
	x := Cause{Code: c, Cause: fill.Replace(t.cause), Command: fill.Replace(t.command),
		Where: cmp.Or(p.Here, "here"), Tells: fill.Replace(t.tells)}
	if t.there && !p.Local {
		x.Where = "on " + p.Peer
	}
	return x
}

// fill returns what fills templates in.
func (p Path) fill(f Fact) *strings.Replacer {
	text := func(a netip.Addr, unknown string) string {
		if !a.IsValid() {
			return unknown
		}
		return a.String()
	}
	const rules = "nft list ruleset"
	to, me := text(f.To, "ADDRESS"), text(p.UnderFrom, "THIS-NODE")
	under, pod, itsRules := p.Under, p.Pod, rules
	if !under.IsValid() {
		under = f.To
	}
	if !pod.IsValid() {
		pod = p.Gateway
	}
	if p.Weft { // nft does not show the rules of legacy iptables
		itsRules = "weft doctor; " + rules
	}
	outer, dump, sockets, kind, match := "what goes to it", "ip", "ss -lunp", "vxlan", ""
	switch {
	case p.UDPPort != 0:
		outer, dump = fmt.Sprintf("UDP port %d", p.UDPPort), fmt.Sprintf("udp port %d", p.UDPPort)
		sockets = fmt.Sprintf("ss -lunp sport = :%d", p.UDPPort)
	case p.Protocol != 0:
		outer, dump = fmt.Sprintf("IP protocol %d", p.Protocol), fmt.Sprintf("ip proto %d", p.Protocol)
		sockets, kind = "ss -wlnp", "ipip"
	}
	if f.Layer == Daemon { // which has a port of its own
		sockets = fmt.Sprintf("ss -lunp sport = :%d", probe.DefaultPort)
	}
	if n := max(p.UDPPort, uint16(p.Protocol)); f.Layer == Port && n != 0 {
		match = fmt.Sprintf(" | grep -e %d -e REJECT -e DROP", n)
	}
	header := 20 + 8 // of an ICMP echo request, which ping -s does not count
	if under.Is6() {
		header += 20
	}
	by, unrouted, onLink := "", "", ""
	if f.Said != nil {
		by = f.Said.Who()
	}
	if p.Neighbour.Err != nil {
		unrouted = " (" + p.Neighbour.unrouted() + ")"
	}
	if l := cmp.Or(p.Link, p.Neighbour.Link); l != "" {
		onLink = "; ip neigh show dev " + l
	}
	return strings.NewReplacer("{peer}", p.Peer, "{to}", to, "{me}", me, "{under}", text(under, "ADDRESS"),
		"{link}", cmp.Or(p.Link, p.Neighbour.Link, "LINK"), "{dev}", cmp.Or(p.Link, "any"), "{on link}", onLink,
		"{next}", text(p.Neighbour.At, text(under, "ADDRESS")), "{by}", by,
		"{rules}", rules, "{its rules}", itsRules, "{outer}", outer, "{dump}", dump,
		"{dump out}", strings.Replace(dump, "udp port", "udp dst port", 1), "{sockets}", sockets, "{kind}", kind,
		"{match}", match, "{port}", fmt.Sprint(p.UDPPort), "{unused}", p.Unused, "{unrouted}", unrouted,
		"{from}", text(p.From, "ADDRESS"), "{gateway}", text(p.Gateway, "ADDRESS"), "{pod}", text(pod, "ADDRESS"),
		"{mtu}", fmt.Sprint(f.MTU), "{size}", fmt.Sprint(f.MTU-header), "{more}", fmt.Sprint(f.lost()-header))
}

// words says what was observed.
func (f Fact) words() string {
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

// lost is a size that did not pass.
func (f Fact) lost() int { return cmp.Or(f.Lost, f.MTU+1) }

// causes are those that a fact does not exclude, the likeliest first, or the one that was observed.
func (p Path) causes(f Fact) (codes []Code, observed bool) {
	link := p.Neighbour.fault()
	switch {
	case f.Layer != Underlay && p.Unused != "":
		return []Code{"not-used"}, true
	case f.State == Lossy:
		return lossy(f), false
	case f.State == Narrow && f.Layer != Underlay && f.Layer != Port &&
		(f.UnderlayAnswers || !p.Under.IsValid()):
		return []Code{"large-udp-dropped", "peer-overlay-mtu"}, false
	case f.State == Narrow:
		return []Code{"path-mtu", "icmp-dropped", "peer-mtu"}, false
	case link != "" && f.Layer != Bridge && f.Layer != Pod:
		return []Code{link}, true
	}
	switch f.Layer {
	case Underlay:
		return p.underlay(f)
	case Port:
		return p.port(f)
	case DataPlane:
		return p.dataPlane(f)
	case Daemon:
		switch f.State {
		case Unsent:
			return cannotSend(f)
		case Refused:
			return []Code{"weftd-stopped", "no-probes"}, false
		default:
			return []Code{"weftd-frozen", "peer-input", "not-known-there"}, false
		}
	case Bridge:
		codes = []Code{"bridge-gone", "no-pods", "no-bridge", "peer-forward"}
	case Pod:
		codes = []Code{"no-such-pod", "policy", "pod-link-down", "forwarding-off", "pod-mute"}
		if f.said(Refused, KindProhibited) {
			codes[0], codes[1] = codes[1], codes[0]
		}
	}
	if p.Controller && !p.Local { // the network's own routers lead packets to pods
		codes = slices.Insert(codes, 0, "router-route")
	}
	return codes, false
}

// said reports whether a message of one of these kinds came back, or the own kernel said so.
func (f Fact) said(s State, kinds ...Kind) bool {
	return f.State == s && f.Said != nil && slices.Contains(kinds, f.Said.Kind)
}

func lossy(f Fact) []Code {
	links := []Code{"link-drops", "peer-link-drops", "hop-drops"}
	switch {
	case f.Layer == Bridge || f.Layer == Pod:
		return []Code{"bridge-drops", "pod-overloaded"}
	case f.Layer == Underlay:
		return append(links, "limit", "peer-limit")
	case f.Probed:
		return append(links, "receive-overflow", "limit", "peer-limit", "udp-policed")
	}
	// the few questions to the underlay may have passed by chance
	return append([]Code{"receive-overflow", "limit", "peer-limit", "udp-policed"}, links...)
}

// cannotSend is for an error of the own kernel. It says "operation not permitted" only for what a filter of
// this host drops.
func cannotSend(f Fact) ([]Code, bool) {
	if f.said(Unsent, KindProhibited) {
		return []Code{"own-output"}, true
	}
	return []Code{"own-output", "no-source"}, false
}

func (p Path) underlay(f Fact) ([]Code, bool) {
	n := p.Neighbour
	answered := len(n.Answers) > 0 && n.At == p.Under
	switch {
	case f.said(Unsent, KindHost) && n.At.IsValid() && n.At != f.To:
		return []Code{"gateway-silent"}, false
	case f.said(Unsent, KindHost):
		return []Code{"host-down", "address-changed", "wrong-link"}, false
	case f.said(Unsent, KindNet):
		return []Code{"no-route"}, true
	case f.State == Unsent:
		return cannotSend(f)
	case f.said(Refused, KindProhibited):
		return []Code{"forbidden"}, true
	case f.State == Refused:
		return []Code{"host-down", "router-route", "address-changed"}, false
	case n.Asked && n.At == p.Under && !answered:
		return []Code{"host-down", "address-changed", "network-broken"}, false
	case answered:
		return []Code{"peer-firewall", "no-way-back", "rp-filter", "record-old"}, false
	}
	return []Code{"host-down", "network-broken", "peer-firewall", "wrong-neighbour", "no-way-back", "rp-filter",
		"record-old"}, false
}

func (p Path) port(f Fact) ([]Code, bool) {
	carrier := Code("device-gone") // the kernel carries packets on, whatever weftd does
	if p.Carried {
		carrier = "weftd-frozen"
	}
	switch {
	case f.State == Unsent:
		return cannotSend(f)
	case f.said(Refused, KindPort, KindProtocol) && f.Said.By == f.To:
		if p.Weft && p.Carried {
			carrier = "weftd-stopped"
		} else {
			carrier = "device-gone"
		}
		return []Code{carrier, "peer-rejects"}, false
	case f.State == Refused && f.Said.By == f.To:
		return []Code{"peer-rejects"}, f.Said.Kind == KindProhibited
	case f.said(Refused, KindHost, KindNet):
		return []Code{"router-route"}, true
	case f.State == Refused:
		return []Code{"way-rejects"}, f.Said.Kind == KindProhibited
	case !f.Heard:
		return []Code{"dropped", carrier, "own-rule", "not-known-there"}, false
	case !f.Probed:
		return []Code{"dropped-one-way", "own-rule"}, false
	case !p.Neighbour.At.IsValid(): // a probe does not ask the underlay
		return []Code{"dropped-one-way", "own-rule", "wrong-neighbour", "no-route"}, false
	}
	return []Code{"dropped-one-way", "own-rule", "wrong-neighbour"}, false
}

func (p Path) dataPlane(f Fact) ([]Code, bool) {
	carrier := Code("flanneld-stopped")
	switch {
	case p.Weft && p.Carried:
		carrier = "weftd-frozen"
	case p.Weft:
		carrier = "device-gone"
	}
	switch {
	case f.said(Unsent, KindProhibited):
		return cannotSend(f)
	case f.State == Unsent:
		return []Code{"no-overlay-route", "own-output"}, false
	case f.State == Refused && f.Said.By == p.From:
		return []Code{"own-data-plane"}, true
	case f.State == Refused:
		return []Code{"left-overlay"}, true
	case f.PortAnswers:
		return []Code{"other-route", "peer-input", "data-plane-drops", "rp-filter"}, false
	}
	return []Code{"dropped", carrier, "own-entries", "peer-input"}, false
}

// Relation is what two nodes, or one and all the others, say of each other. weft matrix sees it, and no
// single node does.
type Relation string

// The relations.
const (
	Alone     Relation = "alone"      // no peer answers this node
	Unseen    Relation = "unseen"     // the node at Path.Here does not know the other
	OneWay    Relation = "one-way"    // only one of two gets answers
	LargeLost Relation = "large-lost" // large packets are lost
	OffPort   Relation = "off-port"   // weft's rules kept datagrams off the overlay's port, and a peer is silent
)

// Between says what follows from a relation.
func Between(p Path, r Relation) (f Finding) {
	for _, c := range map[Relation][]Code{Alone: {"own-fault", "each-of-them"},
		Unseen: {"record-unseen", "record-refused"}, OneWay: {"just-begun", "peer-input"},
		LargeLost: {"path-mtu"}, OffPort: {"other-link", "pod-on-port"}}[r] {
		f.Causes = append(f.Causes, p.cause(c, p.fill(Fact{})))
	}
	if r == LargeLost { // at a size that nobody knows on the underlay
		f.Causes[0].Command, f.Causes[0].Tells = "weft ping "+p.Peer, "the MTU of the underlay layer"
	}
	return f
}

// What is the word for what has the overlay's packets on the wire.
func (p Path) What() string {
	if p.Protocol != 0 {
		return "protocol"
	}
	return "port"
}

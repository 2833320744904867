package hostrules

import (
	"net/netip"
	"slices"
	"strings"

	"weft/lease"
)

// verdict is what a rule does with a packet that matches.
type verdict uint8

const (
	_ verdict = iota // the zero value is a bug
	verdictReturn
	verdictAccept
	verdictDrop
	verdictMasquerade
)

// kubeMark, value and mask, is how kube-proxy says that it masquerades a packet itself.
const kubeMark = 0x4000

// rule matches a packet that all its fields match; a field that is zero matches every packet.
type rule struct {
	ipv6         bool
	marked       bool // kube-proxy's mark is set
	src, dst     netip.Prefix
	nsrc, ndst   bool   // not that src, not that dst
	in, out      string // the links that it came in by, and leaves by
	inside       bool   // the link that it came in by is not of the underlay's side
	port         uint16 // UDP destination
	protocol     uint8  // IP protocol, of packets without ports
	fromStranger bool   // the source is none of the peers
	toPeer       bool   // the destination is one of them
	do           verdict
	comment      string
}

// familyRules is what one family should have. A nil list is a chain that should not exist.
type familyRules struct {
	ipv6        bool
	masquerade  []rule // in flannel's chains
	forward     []rule
	input       []rule // what may not reach the overlay's port here
	onward      []rule // what may not reach it at a peer
	sealedIn    []rule // what may not come in, whomever it is for
	sealedOut   []rule // what may not leave, whoever it is from
	peers       []netip.Addr
	randomFully bool
}

// The comments mark our rules: no rule of flannel's has one of them.
const (
	commentMasquerade = "flanneld masq (weft)"
	commentForward    = "flanneld forward (weft)"
	commentPods       = "weft: pods keep off the overlay port"
	commentStranger   = "weft: not from a peer"
	commentSealed     = "weft: the overlay is encrypted"
	// ownAlias marks our links.
	ownAlias = "weft"
)

// isMarked reports whether a comment, or a rule as iptables-save prints it, has one of our comments.
func isMarked(text string) bool {
	return slices.ContainsFunc([]string{commentMasquerade, commentForward, commentPods, commentStranger,
		commentSealed},
		func(c string) bool { return strings.Contains(text, c) })
}

// Guard says what the overlay's port needs.
type Guard struct {
	// Port is the overlay's UDP port; 0 guards nothing. Port6 is the one over IPv6 where that is another; 0 for
	// Port.
	Port, Port6 uint16
	// Peers also drops datagrams from anyone but the peers. It is for a port on which the kernel's
	// vxlan listens, which accepts packets from everyone; package tunnel checks for itself.
	Peers bool
	// Underlay is the link by which the overlay's datagrams come in; "" if it is not known. If it is
	// set, only links of the underlay's side may use the port, whatever address a datagram has.
	Underlay string
	// Protocol is the overlay's IP protocol if it has no ports, as IP in IP; then Port is 0.
	Protocol uint8
}

// in is g as it is for one family, in Port.
func (g Guard) in(six bool) Guard {
	if six && g.Port6 != 0 {
		g.Port = g.Port6
	}
	g.Port6 = 0
	return g
}

// guards reports whether there is anything to guard.
func (g Guard) guards() bool { return g.Port != 0 || g.Protocol != 0 }

// desired returns the rules of both families. It is pure. A family without a subnet of ours has none. inside
// says that the links of the underlay's side are known; without them the port is forbidden to the network's
// addresses only.
func desired(c Config, set lease.Set, g Guard, inside bool) (v4, v6 familyRules) {
	v6.ipv6 = true
	n, s := c.Network, set.Own.Subnets
	if n.EnableIPv4 && s.V4.IsValid() {
		v4 = desiredFamily(c, n.Network, s.V4, set.Peers, g.in(false), inside)
	}
	if n.EnableIPv6 && s.V6.IsValid() {
		v6 = desiredFamily(c, n.IPv6Network, s.V6, set.Peers, g.in(true), inside)
	}
	return v4, v6
}

func desiredFamily(c Config, n, s netip.Prefix, peers []lease.Record, g Guard, inside bool) familyRules {
	f := familyRules{ipv6: n.Addr().Is6(), randomFully: c.RandomFully}
	if c.Masquerade {
		f.masquerade = masqueradeRules(n, s, c.NoMasquerade)
	}
	if c.Forward {
		f.forward = []rule{
			{src: n, do: verdictAccept, comment: commentForward},
			{dst: n, do: verdictAccept, comment: commentForward},
		}
	}
	if g.guards() {
		f.peers = sources(peers, f.ipv6)
		drop := func(r rule, comment string) rule {
			r.ipv6, r.port, r.protocol, r.do, r.comment = f.ipv6, g.Port, g.Protocol, verdictDrop, comment
			return r
		}
		f.input = []rule{drop(rule{src: n}, commentPods)}
		f.onward = []rule{drop(rule{src: n, dst: n, ndst: true}, commentPods)}
		if g.Peers {
			f.input = append(f.input, drop(rule{fromStranger: true}, commentStranger))
		}
		if inside {
			f.input = append(f.input, drop(rule{inside: true}, commentPods))
			f.onward = append(f.onward, drop(rule{inside: true, toPeer: true}, commentPods))
		}
	}
	if c.seal != nil {
		f.sealedIn, f.sealedOut = c.seal.rules(n, s, true), c.seal.rules(n, s, false)
	}
	return f
}

// masqueradeRules returns flannel's rules for iptables, with those for the networks in never before the rule
// that masquerades. flannel's rules for nftables have one that keeps their last from ever matching; it is not
// copied. All but the first name n, so that two networks can share a chain.
func masqueradeRules(n, s netip.Prefix, never []netip.Prefix) []rule {
	multicast := netip.MustParsePrefix("224.0.0.0/4")
	if n.Addr().Is6() {
		multicast = netip.MustParsePrefix("ff00::/8")
	}
	rules := []rule{
		{marked: true, do: verdictReturn},
		{src: s, dst: n, do: verdictReturn},
		{src: n, dst: s, do: verdictReturn},
		{src: n, nsrc: true, dst: s, do: verdictReturn},
	}
	for _, p := range never {
		if p.Addr().Is6() == n.Addr().Is6() {
			rules = append(rules, rule{src: n, dst: p, do: verdictReturn})
		}
	}
	rules = append(rules,
		rule{src: n, dst: multicast, ndst: true, do: verdictMasquerade},
		rule{src: n, nsrc: true, dst: n, do: verdictMasquerade})
	for i := range rules {
		rules[i].comment = commentMasquerade
	}
	return rules
}

// sources returns the addresses from which datagrams of the peers may come, sorted.
func sources(peers []lease.Record, ipv6 bool) []netip.Addr {
	var as []netip.Addr
	add := func(a netip.Addr) {
		if a.IsValid() && a.Is6() == ipv6 && !a.IsUnspecified() && a.Zone() == "" {
			as = append(as, a)
		}
	}
	for _, r := range peers {
		add(r.PublicIP)
		add(r.PublicIPv6)
		if r.Weft != nil {
			for _, a := range r.Weft.Addrs {
				add(a)
			}
		}
	}
	slices.SortFunc(as, netip.Addr.Compare)
	return slices.Compact(as)
}

// scope is what tells the networks on one host apart: the prefixes of one of them, with those that it had
// before.
type scope []netip.Prefix

// scopeOf is the scope of a network.
func scopeOf(c lease.NetworkConfig, former []netip.Prefix) scope {
	return slices.Concat(c.Networks(), former)
}

// has reports whether p overlaps the network.
func (s scope) has(p netip.Prefix) bool { return slices.ContainsFunc(s, p.Overlaps) }

// label names a network in the chains and sets of table weft, in which a colon is no part of a name.
func label(p netip.Prefix) string { return strings.ReplaceAll(p.Masked().String(), ":", "_") }

// owns reports whether a chain or set of table weft is about the network: its name ends with a label.
func (s scope) owns(name string) bool {
	p, ok := labelled(name)
	return ok && s.has(p)
}

// labelled is the network at the end of a name of ours.
func labelled(name string) (netip.Prefix, bool) {
	for _, stem := range stems() {
		if rest, ok := strings.CutPrefix(name, stem+"-"); ok {
			p, err := netip.ParsePrefix(strings.ReplaceAll(rest, "_", ":"))
			return p, err == nil
		}
	}
	return netip.Prefix{}, false
}

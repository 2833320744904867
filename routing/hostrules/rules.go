package hostrules

import (
	"net/netip"
	"slices"

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

// kubeMark is the mark, value and mask, by which kube-proxy says that it masquerades a packet itself.
const kubeMark = 0x4000

// rule matches a packet that all its fields match; a field that is zero matches every packet.
type rule struct {
	marked       bool // kube-proxy's mark is set
	src, dst     netip.Prefix
	nsrc, ndst   bool   // not that src, not that dst
	in, out      string // the links that it came in by, and leaves by
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
	masquerade  []rule
	forward     []rule
	podsInput   []rule // pods to this host
	podsForward []rule // pods to other hosts
	peersInput  []rule // the underlay to the kernel's vxlan
	insideInput []rule // from links that are not of the underlay's side to this host
	sealedIn    []rule // what comes in, whomever it is for
	sealedOut   []rule // what leaves, whoever it is from
	// peers, sorted, are the addresses that peersInput lets in, and to whose port nobody inside may send.
	peers       []netip.Addr
	randomFully bool
}

func (f familyRules) empty() bool {
	return f.masquerade == nil && f.forward == nil && f.podsInput == nil && f.podsForward == nil && f.peersInput == nil && f.insideInput == nil && f.sealedIn == nil && f.sealedOut == nil
}

// portInput returns the rules about who may send to this host's port. Those about peers come before those that
// end with a return for the links of the underlay's side.
func (f familyRules) portInput() []rule {
	return slices.Concat(f.podsInput, f.peersInput, f.insideInput)
}

// toPeers reports whether a rule is about packets to peers.
func (f familyRules) toPeers() bool {
	return slices.ContainsFunc(f.podsForward, func(r rule) bool { return r.toPeer })
}

// forwardOnly returns only the forward rules of f. A firewall that is in use beside ours, and drops what
// nobody accepts in it, gets these.
func (f familyRules) forwardOnly() familyRules { return familyRules{ipv6: f.ipv6, forward: f.forward} }

// These are the comments of rules. In flannel's chains they begin with flannel's own comment.
const (
	commentMasquerade = "flanneld masq (weft)"
	commentForward    = "flanneld forward (weft)"
	commentPods       = "weft: pods keep off the overlay port"
	commentStranger   = "weft: not from a peer"
	commentOuter      = "weft: by the underlay"
	commentPort       = "weft: the overlay port"
	commentSealed     = "weft: the overlay is encrypted"
	// ownAlias marks the links of ours.
	ownAlias = "weft"
)

// comments lists the comments of all our rules. They are the mark that tells our rules from others': no rule of
// flannel's has one of them.
func comments() []string {
	return []string{commentMasquerade, commentForward, commentPods, commentStranger, commentOuter, commentPort, commentSealed}
}

// Guard says what the overlay's port needs.
type Guard struct {
	// Port is the overlay's UDP port; 0 guards nothing. Port6 is the one over IPv6 where that is another; 0 for Port.
	Port, Port6 uint16
	// Peers also drops datagrams from anyone but the peers. It is for a port on which the kernel's
	// vxlan listens, which accepts packets from everyone; package tunnel checks for itself.
	Peers bool
	// Underlay is the link by which the overlay's datagrams come in; "" if it is not known. If it is
	// set, only links of the underlay's side may use the port, whatever address a datagram has.
	Underlay string
	// Protocol is the overlay's IP protocol, for one without ports, as IP in IP has it: what is said of the port holds
	// for it, and Port is 0; 0 for none.
	Protocol uint8
	// Local4 and Local6 are the underlay's addresses at which datagrams to Port pass the host's rules for incoming packets;
	// invalid where none do, as on path raw, which takes them in front of these.
	Local4, Local6 netip.Addr
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

// desired returns the rules that each family should have. It is pure. Without a subnet of ours there are none.
// outer are the links of the underlay's side; without any, the port is forbidden only to the network's addresses.
func desired(c Config, set lease.Set, g Guard, outer []string) (v4, v6 familyRules) {
	v6.ipv6 = true
	n, s := c.Network, set.Own.Subnets
	if n.EnableIPv4 {
		v4 = desiredFamily(c, n.Network, s.V4, set.Peers, g.in(false), outer)
	}
	if n.EnableIPv6 {
		v6 = desiredFamily(c, n.IPv6Network, s.V6, set.Peers, g.in(true), outer)
	}
	return v4, v6
}

// mostSpared is the largest number of peers for which the rules name each peer, so that senders inside this host
// may use the port towards everybody else, as another overlay behind a bridge would. With more peers reading the
// rules back after each change would cost more than all the rest of it. The rules for the kernel's vxlan name the
// peers in any case.
const mostSpared = 256

func desiredFamily(c Config, n, s netip.Prefix, peers []lease.Record, g Guard, outer []string) familyRules {
	f := familyRules{ipv6: n.Addr().Is6(), randomFully: c.RandomFully}
	if !s.IsValid() {
		return f
	}
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
		f.podsInput = []rule{{src: n, port: g.Port, protocol: g.Protocol, do: verdictDrop, comment: commentPods}}
		f.podsForward = []rule{{src: n, dst: n, ndst: true, port: g.Port, protocol: g.Protocol, do: verdictDrop, comment: commentPods}}
		if len(outer) > 0 {
			var admit []rule
			for _, link := range outer {
				admit = append(admit, rule{in: link, port: g.Port, protocol: g.Protocol, do: verdictReturn, comment: commentOuter})
			}
			f.insideInput = append(admit, rule{port: g.Port, protocol: g.Protocol, do: verdictDrop, comment: commentPods})
			onward := rule{port: g.Port, protocol: g.Protocol, toPeer: g.Peers || len(peers) <= mostSpared, do: verdictDrop, comment: commentPods}
			f.podsForward = slices.Concat(f.podsForward, admit, []rule{onward})
			if onward.toPeer {
				f.peers = sources(peers, f.ipv6)
			}
		}
	}
	if c.seal != nil {
		f.sealedIn, f.sealedOut = c.seal.in(n, s), c.seal.out(n, s)
	}
	if g.guards() && g.Peers {
		f.peersInput = []rule{{port: g.Port, protocol: g.Protocol, fromStranger: true, do: verdictDrop, comment: commentStranger}}
		f.peers = sources(peers, f.ipv6)
	}
	return f
}

// masqueradeRules returns flannel's rules for iptables, with ours for the networks in never before the rule that
// masquerades. flannel's rules for nftables have one that differs and keeps their last from ever matching; it is
// not copied.
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
			rules = append(rules, rule{dst: p, do: verdictReturn})
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

package underlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"weft/routing/internal/kernel"
)

// candidates lists what the options propose, in the order of trying.
func (l listing) candidates(o Options, regexes []*regexp.Regexp) []candidate {
	var cs []candidate
	if !o.explicit() {
		cs = l.publicCandidates(o)
		return append(cs, l.defaultCandidates(o)...)
	}
	for _, s := range o.Interfaces {
		cs = append(cs, l.interfaceCandidate(s))
	}
	for _, re := range regexes {
		cs = append(cs, l.regexCandidates(re, o)...)
	}
	if o.CanReach.IsValid() {
		c := candidate{why: fmt.Sprintf("--iface-can-reach %v", o.CanReach), index: l.reach.Index,
			addr: l.reach.Src}
		if l.reach.Err != nil {
			c.fault = fmt.Sprintf("no route to it: %v", l.reach.Err)
		}
		cs = append(cs, c)
	}
	return cs
}

// interfaceCandidate resolves one --iface: an address, else a name.
func (l listing) interfaceCandidate(s string) candidate {
	c := candidate{why: fmt.Sprintf("--iface %s", s)}
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap()
		if i := slices.IndexFunc(l.addrs, func(k kernel.AddrInfo) bool { return k.Addr == a.WithZone("") }); i >= 0 {
			c.index, c.addr = l.addrs[i].Index, a
			return c
		}
		c.fault = "no interface has that address; an address that is not local, as behind NAT, is what " +
			"--public-ip is for"
		return c
	}
	if i := slices.IndexFunc(l.links, func(d kernel.Device) bool { return d.Name == s }); i >= 0 {
		c.index = l.links[i].Index
		return c
	}
	names := make([]string, len(l.links))
	for i, k := range l.links {
		names[i] = k.Name
	}
	c.fault = "no such interface; there are " + strings.Join(names, ", ")
	return c
}

// regexCandidates matches addresses first and names only if no address matched,
// as flannel does. A link whose addresses of every family match comes first.
func (l listing) regexCandidates(re *regexp.Regexp, o Options) []candidate {
	why := fmt.Sprintf("--iface-regex %q", re.String())
	var cs []candidate
	for _, a := range l.addrs {
		if six := a.Addr.Is6(); six && !o.IPv6 || !six && !o.IPv4 {
			continue
		}
		if re.MatchString(a.Addr.String()) {
			cs = append(cs, candidate{why: why, index: a.Index, addr: a.Addr})
		}
	}
	if len(cs) > 0 {
		return cs
	}
	for _, k := range l.links {
		if re.MatchString(k.Name) {
			cs = append(cs, candidate{why: why, index: k.Index})
		}
	}
	if len(cs) == 0 {
		cs = append(cs, candidate{why: why, fault: "matches no address and no interface name"})
	}
	return cs
}

// publicCandidates are the links that have a public address themselves. A public
// address that no link has is only advertised (NAT), and is no candidate.
func (l listing) publicCandidates(o Options) []candidate {
	var cs []candidate
	for _, p := range []struct {
		flag string
		addr netip.Addr
		on   bool
	}{{"--public-ip", o.PublicIP, o.IPv4}, {"--public-ipv6", o.PublicIPv6, o.IPv6}} {
		if !p.on || !p.addr.IsValid() {
			continue
		}
		for _, a := range l.addrs {
			if a.Addr == p.addr {
				cs = append(cs, candidate{why: fmt.Sprintf("%s %v", p.flag, p.addr), index: a.Index, addr: a.Addr})
			}
		}
	}
	return cs
}

// defaultCandidates are the links of default routes, lowest metric first. In dual stack a
// link with default routes of both families precedes one without; between families with
// equal metrics IPv4 decides, since its metrics and those of IPv6 are not on one scale.
func (l listing) defaultCandidates(o Options) []candidate {
	type link struct {
		index      int
		has4, has6 bool
		m4, m6     uint32
	}
	var ls []link
	for _, d := range l.defaults {
		if d.Six && !o.IPv6 || !d.Six && !o.IPv4 {
			continue
		}
		i := slices.IndexFunc(ls, func(w link) bool { return w.index == d.Index })
		if i < 0 {
			ls = append(ls, link{index: d.Index})
			i = len(ls) - 1
		}
		has, m := &ls[i].has4, &ls[i].m4
		if d.Six {
			has, m = &ls[i].has6, &ls[i].m6
		}
		if !*has || d.Metric < *m {
			*has, *m = true, d.Metric
		}
	}
	lacks := func(w link) int { // the families, IPv4 weighing more
		switch {
		case w.has4 && w.has6:
			return 0
		case w.has4:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(ls, func(a, b link) int {
		return cmp.Or(lacks(a)-lacks(b), cmp.Compare(a.m4, b.m4), cmp.Compare(a.m6, b.m6))
	})
	cs := make([]candidate, len(ls))
	for i, w := range ls {
		cs[i] = candidate{why: "default route", index: w.index}
	}
	return cs
}

// pick chooses the candidate's local address of one family, or says why there is
// none. A named address comes first, then the public one if the link has it, since
// peers expect packets from the advertised address; then global before link-local, settled
// before tentative, permanent before dynamic, lasting before temporary.
func (l listing) pick(c candidate, six bool, o Options) (netip.Addr, string) {
	family, public := "IPv4", o.PublicIP
	if six {
		family, public = "IPv6", o.PublicIPv6
	}
	var usable []kernel.AddrInfo
	var refused []string
	for _, a := range l.addrs {
		if a.Index != c.index || a.Addr.Is6() != six {
			continue
		}
		if why := unfit(a, o.Overlay); why != "" {
			refused = append(refused, fmt.Sprintf("%v is %s", a.Addr, why))
			continue
		}
		usable = append(usable, a)
	}
	if len(usable) == 0 {
		if len(refused) > 0 {
			return netip.Addr{}, fmt.Sprintf("has no usable %s address (%s)", family, strings.Join(refused, ", "))
		}
		return netip.Addr{}, fmt.Sprintf("has no %s address", family)
	}
	for _, first := range []netip.Addr{c.addr, public} {
		if slices.ContainsFunc(usable, func(a kernel.AddrInfo) bool { return a.Addr == first }) {
			return first, ""
		}
	}
	return slices.MinFunc(usable, func(a, b kernel.AddrInfo) int { return cmp.Compare(rank(a), rank(b)) }).Addr,
		""
}

// unfit says why the address cannot be an underlay's, or is empty.
func unfit(a kernel.AddrInfo, overlay []netip.Prefix) string {
	switch {
	case a.Deprecated:
		return "deprecated"
	case a.Failed:
		return "a duplicate of another host's"
	case a.Addr.IsLinkLocalUnicast() && a.Addr.Is6():
		return "link-local, and a lease record has no room for its zone"
	case !a.Addr.IsGlobalUnicast() && !a.Addr.IsLinkLocalUnicast():
		return "not unicast beyond this host"
	}
	for _, n := range overlay {
		if n.Contains(a.Addr) {
			return fmt.Sprintf("within the overlay network %v", n)
		}
	}
	return ""
}

// rank orders usable addresses, best first.
func rank(a kernel.AddrInfo) int {
	r := 0
	for i, worse := range []bool{a.Temporary, a.Dynamic, a.Tentative, a.Addr.IsLinkLocalUnicast()} {
		if worse {
			r |= 1 << i
		}
	}
	return r
}

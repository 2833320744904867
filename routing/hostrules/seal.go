package hostrules

import (
	"net/netip"
	"reflect"
	"slices"
)

// Seal says that packets of the overlay come and go encrypted, and in plain only where it says so.
type Seal struct {
	// Devices are those by which they come and go encrypted.
	Devices []string
	// Underlay is the link of the nodes; "" if it is not in this namespace.
	Underlay string
	// Plain, sorted, are subnets of peers on the underlay's own link, whose packets come and go by it as they
	// are. Hosts, sorted, are these peers' own addresses, which may send to pods.
	Plain []netip.Prefix
	Hosts []netip.Addr
	// Admitted are sources outside the overlay that may send to it in plain by the underlay.
	Admitted []netip.Prefix
}

// Seal says what is sealed from now on; nil for nothing. The rules follow with the next Apply, and soon while
// Run runs. It reports whether that is another seal than before. It never waits for the kernel.
func (r *Rules) Seal(s *Seal) (changed bool) {
	before := r.seals.Swap(s)
	if reflect.DeepEqual(before, s) {
		return false
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return true
}

// rules returns what may not leave, after the destination was translated, or with in what may not come in,
// before any address is. n is the overlay's network and own this node's subnet.
func (s *Seal) rules(n, own netip.Prefix, in bool) (rs []rule) {
	add := func(link string, address netip.Prefix, do verdict) {
		r := rule{out: link, dst: address, do: do}
		if in {
			r = rule{in: link, src: address, do: do}
		}
		rs = append(rs, r)
	}
	for _, d := range append(slices.Clone(s.Devices), "lo") {
		add(d, netip.Prefix{}, verdictReturn)
	}
	if s.Underlay != "" {
		for _, p := range s.of(n, s.Plain) {
			add(s.Underlay, p, verdictReturn)
		}
		add(s.Underlay, n, verdictDrop) // of what comes in, also who claims to be a pod of this node
	}
	if s.Underlay != "" && in {
		for _, p := range s.of(n, slices.Concat(hosts(s.Hosts), s.Admitted)) {
			rs = append(rs, rule{src: p, dst: n, in: s.Underlay, do: verdictReturn})
		}
		rs = append(rs, rule{dst: n, in: s.Underlay, do: verdictDrop})
	}
	add("", own, verdictReturn)
	add("", n, verdictDrop)
	for i := range rs {
		rs[i].ipv6, rs[i].comment = n.Addr().Is6(), commentSealed
	}
	return rs
}

// of returns those of ps that are of n's family.
func (*Seal) of(n netip.Prefix, ps []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(ps), func(p netip.Prefix) bool {
		return p.Addr().Is6() != n.Addr().Is6()
	})
}

func hosts(as []netip.Addr) (ps []netip.Prefix) {
	for _, a := range as {
		ps = append(ps, netip.PrefixFrom(a, a.BitLen()))
	}
	return ps
}

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

// in returns what may not come in, before any address is translated. n is the overlay's network and own this
// node's subnet.
func (s *Seal) in(n, own netip.Prefix) []rule {
	var rs []rule
	for _, d := range append(slices.Clone(s.Devices), "lo") {
		rs = append(rs, rule{in: d, do: verdictReturn})
	}
	if s.Underlay != "" {
		for _, p := range s.of(n, s.Plain) {
			rs = append(rs, rule{src: p, in: s.Underlay, do: verdictReturn})
		}
		rs = append(rs, rule{src: n, in: s.Underlay, do: verdictDrop}) // also who claims to be a pod of this node
		for _, p := range s.of(n, slices.Concat(hosts(s.Hosts), s.Admitted)) {
			rs = append(rs, rule{src: p, dst: n, in: s.Underlay, do: verdictReturn})
		}
		rs = append(rs, rule{dst: n, in: s.Underlay, do: verdictDrop})
	}
	return sealed(n, append(rs, rule{src: own, do: verdictReturn}, rule{src: n, do: verdictDrop}))
}

// out returns what may not leave, after the destination was translated.
func (s *Seal) out(n, own netip.Prefix) []rule {
	var rs []rule
	for _, d := range append(slices.Clone(s.Devices), "lo") {
		rs = append(rs, rule{out: d, do: verdictReturn})
	}
	if s.Underlay != "" {
		for _, p := range s.of(n, s.Plain) {
			rs = append(rs, rule{dst: p, out: s.Underlay, do: verdictReturn})
		}
		rs = append(rs, rule{dst: n, out: s.Underlay, do: verdictDrop})
	}
	return sealed(n, append(rs, rule{dst: own, do: verdictReturn}, rule{dst: n, do: verdictDrop}))
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

func sealed(n netip.Prefix, rs []rule) []rule {
	for i := range rs {
		rs[i].ipv6 = n.Addr().Is6()
		rs[i].comment = commentSealed
	}
	return rs
}

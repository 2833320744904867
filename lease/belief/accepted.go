package belief

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/lease"
)

// accepted is what the records that passed Check so far lay claim to.
type accepted struct {
	subnets, addrs prefixSet
}

func newAccepted(size int) accepted {
	return accepted{prefixSet{make([]netip.Prefix, 0, size)}, prefixSet{make([]netip.Prefix, 0, size)}}
}

// clash says what a record takes from one that was accepted before it: its
// subnet, or the address at which it is reached.
func (e *accepted) clash(s lease.Subnets, a lease.Attrs) (lease.RejectReason, string) {
	for _, p := range []netip.Prefix{s.V4, s.V6} {
		if q, hit := e.subnets.overlap(p); hit {
			return lease.RejectOverlapsPeer, fmt.Sprintf("%s is a peer's", q)
		}
		if q, hit := e.addrs.overlap(p); hit {
			return lease.RejectCoversUnderlay, fmt.Sprintf("it contains %s, a peer's address", q.Addr())
		}
	}
	for _, host := range hosts(a) {
		if q, hit := e.subnets.overlap(host); hit {
			return lease.RejectAddress, fmt.Sprintf("%s is inside %s, a peer's subnet", host.Addr(), q)
		}
	}
	return "", ""
}

func (e *accepted) add(s lease.Subnets, a lease.Attrs) {
	e.subnets.add(s.V4)
	e.subnets.add(s.V6)
	for _, host := range hosts(a) {
		e.addrs.add(host)
	}
}

// hosts returns the owner's addresses as prefixes of full length; one that is absent is the zero prefix.
func hosts(a lease.Attrs) (out [2]netip.Prefix) {
	for i, addr := range [...]netip.Addr{a.PublicIP, a.PublicIPv6} {
		if addr.IsValid() {
			out[i] = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	return out
}

// prefixSet finds an overlap with any of its prefixes in the time of one binary
// search. None of its prefixes overlaps another; both families may be in it.
type prefixSet struct{ sorted []netip.Prefix }

func (s *prefixSet) overlap(p netip.Prefix) (netip.Prefix, bool) {
	if !p.IsValid() {
		return netip.Prefix{}, false
	}
	i, _ := slices.BinarySearchFunc(s.sorted, p, lease.ComparePrefix)
	for _, at := range []int{i - 1, i} {
		if at >= 0 && at < len(s.sorted) && s.sorted[at].Overlaps(p) {
			return s.sorted[at], true
		}
	}
	return netip.Prefix{}, false
}

// add inserts p unless it overlaps what is there.
func (s *prefixSet) add(p netip.Prefix) {
	if _, hit := s.overlap(p); hit || !p.IsValid() {
		return
	}
	i, _ := slices.BinarySearchFunc(s.sorted, p, lease.ComparePrefix)
	s.sorted = slices.Insert(s.sorted, i, p)
}

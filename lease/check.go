package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Rules has the facts that records are checked against.
type Rules struct {
	Config NetworkConfig
	Self   Self
	// Own are our subnets; zero while we have none.
	Own Subnets
	// Underlay lists the local and the advertised addresses of the tunnel. No peer's subnet may contain one.
	Underlay []netip.Addr
	// Store are the store's addresses. No peer's subnet may contain one.
	Store []netip.Addr
	// AnyLength admits subnets of any length, for a store in which others choose it.
	AnyLength bool

	ranges []Range // of Config, while Check runs
}

// equal reports whether the same records pass.
func (u Rules) equal(v Rules) bool {
	return u.Own == v.Own && u.Self == v.Self && u.AnyLength == v.AnyLength && u.Config.Equal(v.Config) &&
		slices.Equal(u.Underlay, v.Underlay) && slices.Equal(u.Store, v.Store)
}

// Check splits records into peers, which are accepted, and rejected ones with a reason. Of two records that
// overlap, the one that was accepted before wins, then the first by subnet; so a new record cannot displace a
// peer. Our own record is in neither result. Both are new slices, sorted by subnets; peers are of records.
func (u Rules) Check(records []*Record, before []Record) (peers []*Record, rejected []Rejected) {
	u.ranges = u.Config.Ranges()
	peers = make([]*Record, 0, len(records))
	earlier := newAccepted(len(records))
	for _, r := range acceptedFirst(records, before) {
		if u.own(*r) {
			continue
		}
		reason, detail := u.check(*r)
		if reason == "" {
			reason, detail = earlier.clash(u.Config.InUse(r.Subnets), r.Attrs)
		}
		if reason != "" {
			rejected = append(rejected, Rejected{Key: r.RecordName(), Reason: reason, Detail: detail, Revision: r.Revision})
			continue
		}
		earlier.add(u.Config.InUse(r.Subnets), r.Attrs)
		peers = append(peers, r)
	}
	slices.SortFunc(peers, func(a, b *Record) int { return a.Compare(b.Subnets) })
	slices.SortFunc(rejected, func(a, b Rejected) int { return strings.Compare(a.Key, b.Key) })
	return peers, rejected
}

// acceptedFirst are the records that are in before with the same owner, by subnets, then the others.
func acceptedFirst(records []*Record, before []Record) []*Record {
	bySubnets := func(a, b Record) int { return a.Compare(b.Subnets) }
	if !slices.IsSortedFunc(before, bySubnets) {
		before = slices.SortedFunc(slices.Values(before), bySubnets)
	}
	ordered, others := make([]*Record, 0, len(records)), []*Record(nil)
	for _, r := range records {
		i, ok := slices.BinarySearchFunc(before, r.Subnets, func(b Record, s Subnets) int { return b.Compare(s) })
		if ok && before[i].Node() == r.Node() && sameKube(before[i].Kube, r.Kube) {
			ordered = append(ordered, r)
		} else {
			others = append(others, r)
		}
	}
	for _, part := range [][]*Record{ordered, others} {
		slices.SortStableFunc(part, func(a, b *Record) int { return a.Compare(b.Subnets) })
	}
	return append(ordered, others...)
}

// own reports whether r is the record that we hold, whoever's name is on it at the moment, or while we hold
// none one that this installation wrote, as when it has just given a subnet up: both are for the keeper to
// judge. In Kubernetes it is another Node's, with our subnets.
func (u Rules) own(r Record) bool {
	if r.Kube != nil {
		return false
	}
	if u.Own == (Subnets{}) {
		return u.Self.Owns(r.Attrs) == Ours && u.Self.Recognises(r.Attrs)
	}
	return r.Subnets == u.Own
}

// check looks at one record by itself; reason "" means that nothing is wrong.
func (u Rules) check(r Record) (RejectReason, string) {
	r.Subnets = u.Config.InUse(r.Subnets)
	if reason, detail := u.checkSubnets(r.Subnets); reason != "" {
		return reason, detail
	}
	switch u.Self.Owns(r.Attrs) {
	case Ours:
		return RejectOurAddress, "it carries our identity"
	case Adoptable, Rival:
		return RejectOurAddress, fmt.Sprintf("%s is our address", r.Address())
	case Foreign:
	}
	reachable := false
	for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
		switch {
		case !a.IsValid():
			continue
		case !sendable(a):
			return RejectAddress, fmt.Sprintf("no packet can be sent to %s", a)
		case r.Contains(a) || u.Own.Contains(a):
			return RejectAddress, fmt.Sprintf("%s is inside the overlay", a)
		}
		reachable = true
	}
	if !reachable {
		return RejectAddress, "it has no address"
	}
	return "", ""
}

func (u Rules) checkSubnets(s Subnets) (RejectReason, string) {
	common := false
	for _, f := range u.ranges {
		p := f.Of(s)
		if !p.IsValid() {
			continue
		}
		common = true
		if p.Bits() < f.Network.Bits() || !f.Network.Contains(p.Addr()) {
			return RejectOutside, fmt.Sprintf("%s is not inside %s", p, f.Network)
		}
		if !u.AnyLength && p.Bits() != f.Bits {
			return RejectLength, fmt.Sprintf("/%d, and the network's is /%d", p.Bits(), f.Bits)
		}
	}
	if !common {
		return RejectFamily, "it has no subnet of a family that is on"
	}
	if s.Overlaps(u.Own) {
		return RejectOverlapsOwn, fmt.Sprintf("%s is ours", u.Own)
	}
	for _, a := range u.Underlay {
		if s.Contains(a) {
			return RejectCoversUnderlay, fmt.Sprintf("it contains %s", a)
		}
	}
	for _, a := range u.Store {
		if s.Contains(a) {
			return RejectCoversStore, fmt.Sprintf("it contains %s", a)
		}
	}
	return "", ""
}

// sendable reports whether a could be a node's address.
func sendable(a netip.Addr) bool {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.Is4In6() &&
		a != broadcast
}

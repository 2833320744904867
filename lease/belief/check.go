package belief

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/lease"
)

// Rules has the facts that records are checked against.
type Rules struct {
	Config lease.NetworkConfig
	Self   lease.Self
	// Own are our subnets; zero while we have none.
	Own lease.Subnets
	// Underlay lists the local and the advertised addresses of the tunnel. No peer's subnet may contain one.
	Underlay []netip.Addr
	// Store are the store's addresses. No peer's subnet may contain one.
	Store []netip.Addr
	// AnyLength admits subnets of any length, for a store in which others choose it.
	AnyLength bool

	ranges []lease.Range // of Config, while Check runs
}

// equal reports whether the same records pass.
func (u Rules) equal(v Rules) bool {
	return u.Own == v.Own && u.Self == v.Self && u.AnyLength == v.AnyLength && u.Config.Equal(v.Config) &&
		slices.Equal(u.Underlay, v.Underlay) && slices.Equal(u.Store, v.Store)
}

// Check splits records into peers, which are accepted, and rejected ones with a reason. Of two records that
// overlap, the one that was accepted before wins, then the first by subnet; so a new record cannot displace a
// peer. Our own record is in neither result. Both are new slices, sorted by subnets; peers are of records.
func (u Rules) Check(records []*lease.Record, before []lease.Record) (
	peers []*lease.Record, rejected []lease.Rejected) {
	u.ranges = u.Config.Ranges()
	peers = make([]*lease.Record, 0, len(records))
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
			rejected = append(rejected, lease.Rejected{Key: r.RecordName(), Reason: reason, Detail: detail,
				Revision: r.Revision})
			continue
		}
		earlier.add(u.Config.InUse(r.Subnets), r.Attrs)
		peers = append(peers, r)
	}
	slices.SortFunc(peers, func(a, b *lease.Record) int { return a.Compare(b.Subnets) })
	slices.SortFunc(rejected, func(a, b lease.Rejected) int { return strings.Compare(a.Key, b.Key) })
	return peers, rejected
}

// acceptedFirst are the records that are in before with the same owner, by subnets, then the others.
func acceptedFirst(records []*lease.Record, before []lease.Record) []*lease.Record {
	bySubnets := func(a, b lease.Record) int { return a.Compare(b.Subnets) }
	if !slices.IsSortedFunc(before, bySubnets) {
		before = slices.SortedFunc(slices.Values(before), bySubnets)
	}
	ordered, others := make([]*lease.Record, 0, len(records)), []*lease.Record(nil)
	for _, r := range records {
		compare := func(b lease.Record, s lease.Subnets) int { return b.Compare(s) }
		i, ok := slices.BinarySearchFunc(before, r.Subnets, compare)
		if ok && before[i].Node() == r.Node() && lease.SameKube(before[i].Kube, r.Kube) {
			ordered = append(ordered, r)
		} else {
			others = append(others, r)
		}
	}
	for _, part := range [][]*lease.Record{ordered, others} {
		slices.SortStableFunc(part, func(a, b *lease.Record) int { return a.Compare(b.Subnets) })
	}
	return append(ordered, others...)
}

// own reports whether r is the record that we hold, whoever's name is on it at the moment, or while we hold
// none one that this installation wrote, as when it has just given a subnet up: both are for the keeper to
// judge. In Kubernetes it is another Node's, with our subnets.
func (u Rules) own(r lease.Record) bool {
	if r.Kube != nil {
		return false
	}
	if u.Own == (lease.Subnets{}) {
		return u.Self.Owns(r.Attrs) == lease.Ours && u.Self.Recognises(r.Attrs)
	}
	return r.Subnets == u.Own
}

// check looks at one record by itself; reason "" means that nothing is wrong.
func (u Rules) check(r lease.Record) (lease.RejectReason, string) {
	r.Subnets = u.Config.InUse(r.Subnets)
	if reason, detail := u.checkSubnets(r.Subnets); reason != "" {
		return reason, detail
	}
	switch u.Self.Owns(r.Attrs) {
	case lease.Ours:
		return lease.RejectOurAddress, "it carries our identity"
	case lease.Adoptable, lease.Rival:
		return lease.RejectOurAddress, fmt.Sprintf("%s is our address", r.Address())
	case lease.Foreign:
	}
	reachable := false
	for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
		switch {
		case !a.IsValid():
			continue
		case !sendable(a):
			return lease.RejectAddress, fmt.Sprintf("no packet can be sent to %s", a)
		case r.Contains(a) || u.Own.Contains(a):
			return lease.RejectAddress, fmt.Sprintf("%s is inside the overlay", a)
		}
		reachable = true
	}
	if !reachable {
		return lease.RejectAddress, "it has no address"
	}
	return "", ""
}

func (u Rules) checkSubnets(s lease.Subnets) (lease.RejectReason, string) {
	common := false
	for _, f := range u.ranges {
		p := f.Of(s)
		if !p.IsValid() {
			continue
		}
		common = true
		if p.Bits() < f.Network.Bits() || !f.Network.Contains(p.Addr()) {
			return lease.RejectOutside, fmt.Sprintf("%s is not inside %s", p, f.Network)
		}
		if !u.AnyLength && p.Bits() != f.Bits {
			return lease.RejectLength, fmt.Sprintf("/%d, and the network's is /%d", p.Bits(), f.Bits)
		}
	}
	if !common {
		return lease.RejectFamily, "it has no subnet of a family that is on"
	}
	if s.Overlaps(u.Own) {
		return lease.RejectOverlapsOwn, fmt.Sprintf("%s is ours", u.Own)
	}
	for _, a := range u.Underlay {
		if s.Contains(a) {
			return lease.RejectCoversUnderlay, fmt.Sprintf("it contains %s", a)
		}
	}
	for _, a := range u.Store {
		if s.Contains(a) {
			return lease.RejectCoversStore, fmt.Sprintf("it contains %s", a)
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

package keeper

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"weft/lease"
)

// firstFree is among how many free subnets one is drawn, as flannel does: few
// enough that the low end fills up, enough that nodes starting together seldom collide.
const firstFree = 100

// ClaimKind is the reason for which a claim has its subnet.
type ClaimKind uint8

// The kinds, best first. The zero value is a bug.
const (
	_ ClaimKind = iota
	// ClaimOwn is the record with our identity.
	ClaimOwn
	// ClaimAdopt is a record without identity under our address.
	ClaimAdopt
	// ClaimPart keeps the family that the network still has, of our record or of our previous subnet, and
	// draws the other one. So pods keep their addresses when IPv6 is turned on or off in a running network.
	ClaimPart
	// ClaimPrevious is the subnet that we had before, which is free.
	ClaimPrevious
	// ClaimFree was drawn among the free ones.
	ClaimFree
)

func (k ClaimKind) String() string {
	switch k {
	case ClaimOwn:
		return "own"
	case ClaimAdopt:
		return "adopt"
	case ClaimPart:
		return "part"
	case ClaimPrevious:
		return "previous"
	case ClaimFree:
		return "free"
	}
	return "invalid"
}

// Claim is the record to write in order to own a subnet.
type Claim struct {
	lease.Subnets
	Kind ClaimKind
	// Current is the record that the claim replaces; the zero Record if there is none. With
	// ClaimPart it has other subnets, and so another key.
	Current lease.Record
	// Release lists our records that do not fit the network. They are deleted once the claim is written.
	Release []lease.Record
	// Reasons explains why no better claim was possible.
	Reasons []string
}

// Request is the input of Plan.
type Request struct {
	Config lease.NetworkConfig
	Self   lease.Self
	// Records lists all records of the store.
	Records []lease.Record
	// Twins marks records with our identity that another process wrote. We neither take nor release them.
	Twins map[lease.Subnets]bool
	// Bad lists records that do not parse. A subnet that is named by such a key counts as taken.
	Bad []lease.Rejected
	// Previous is the subnet that we had before; zero if none.
	Previous lease.Subnets
	// Avoid are addresses that our subnet must not contain: the underlay's and the store's.
	Avoid []netip.Addr
	// Rand draws among the free subnets.
	Rand *rand.Rand
}

// Plan chooses a subnet: our own record's, else one that may be adopted, else the part of one that
// fits, else the previous one or its part, else a free one. It is pure. The error is a *RivalError, an
// *IPv6OnlyError or wraps ErrOutOfSubnets.
func Plan(q Request) (Claim, error) {
	if err := lease.CheckIPv6Only(q.Config, q.Records); err != nil {
		return Claim{}, err
	}
	var c Claim
	var current, unfit []lease.Record
	var rival *lease.RivalError
	for _, r := range q.Records {
		if q.Twins[r.Subnets] {
			continue
		}
		switch owns := q.Self.Owns(r.Attrs); owns {
		case lease.Rival:
			rival = &lease.RivalError{Ours: q.Self.Node, Theirs: r.Node(), TheirName: r.PublishedName(),
				Subnets: r.Subnets, Address: r.Address()}
		case lease.Ours, lease.Adoptable:
			why := cmp.Or(q.unfit(r.Subnets), q.second(r))
			if why == "" {
				current = append(current, r)
				break
			}
			c.Reasons = append(c.Reasons, fmt.Sprintf("%s has our record, but %s", r.Subnets, why))
			unfit = append(unfit, r)
			if !r.Reservation {
				c.Release = append(c.Release, r)
			}
		case lease.Foreign:
		}
	}
	if rival != nil && !q.settled(current) {
		return Claim{}, rival
	}
	if len(current) > 0 {
		return q.choose(c, current), nil
	}
	for _, r := range q.ranked(unfit) {
		if part := q.part(r.Subnets, r.Revision); part != (lease.Subnets{}) {
			c.Kind, c.Current, c.Subnets = ClaimPart, r, part
			c.Release = slices.DeleteFunc(c.Release,
				func(other lease.Record) bool { return other.Subnets == r.Subnets })
			return q.draw(c)
		}
	}
	if q.Previous != (lease.Subnets{}) {
		if why := q.blocked(q.Previous); why != "" {
			c.Reasons = append(c.Reasons, fmt.Sprintf("%s was ours before, but %s", q.Previous, why))
		} else {
			c.Subnets, c.Kind = q.Previous, ClaimPrevious
			return c, nil
		}
		if part := q.part(q.Previous, 0); part != (lease.Subnets{}) {
			c.Subnets, c.Kind = part, ClaimPart
			return q.draw(c)
		}
	}
	c.Kind = ClaimFree
	return q.draw(c)
}

// settled reports whether a record of ours already says what we publish. Such a
// node has done nothing new, so a rival does not stop it.
func (q Request) settled(current []lease.Record) bool {
	return slices.ContainsFunc(current, func(r lease.Record) bool {
		return q.Self.Owns(r.Attrs) == lease.Ours && r.PublicIP == q.Self.PublicIP &&
			r.PublicIPv6 == q.Self.PublicIPv6
	})
}

// choose takes one of several records that could be ours: one with our identity
// before one to adopt, the previous subnet before others. Surplus ones with our
// identity are released, since peers would route them here.
func (q Request) choose(c Claim, current []lease.Record) Claim {
	current = q.ranked(current)
	c.Current = current[0]
	c.Subnets, c.Kind = c.Current.Subnets, ClaimOwn
	if q.Self.Owns(c.Current.Attrs) == lease.Adoptable {
		c.Kind = ClaimAdopt
	}
	for _, r := range current[1:] {
		if q.Self.Owns(r.Attrs) == lease.Ours && !r.Reservation {
			c.Release = append(c.Release, r)
		}
	}
	return c
}

// ranked sorts records that could be ours, the best first.
func (q Request) ranked(records []lease.Record) []lease.Record {
	rank := func(r lease.Record) int {
		n := 0
		if q.Self.Owns(r.Attrs) != lease.Ours {
			n += 2
		}
		if r.Subnets != q.Previous {
			n++
		}
		return n
	}
	slices.SortStableFunc(records, func(a, b lease.Record) int {
		return cmp.Or(rank(a)-rank(b), a.Compare(b.Subnets))
	})
	return records
}

// part is the family of s that the network has on, if it fits and is nobody else's. revision is that of the
// record that has s, 0 if none does. It is zero if none is.
func (q Request) part(s lease.Subnets, revision int64) lease.Subnets {
	var kept lease.Subnets
	for _, f := range q.Config.Ranges() {
		one := lease.Subnets{V4: s.V4}
		if f.Network.Addr().Is6() {
			one = lease.Subnets{V6: s.V6}
		}
		if f.Unfit(cmp.Or(one.V4, one.V6)) != "" || q.avoided(one) != "" || q.held(one, revision) != "" {
			continue
		}
		kept.V4, kept.V6 = cmp.Or(kept.V4, one.V4), cmp.Or(kept.V6, one.V6)
	}
	return kept
}

// unfit says why the network's configuration does not allow s, or "".
func (q Request) unfit(s lease.Subnets) string {
	for _, f := range q.Config.Ranges() {
		p := f.Of(s)
		if why := f.Unfit(p); why != "" {
			return why
		}
	}
	if !q.Config.EnableIPv4 && s.V4.IsValid() || !q.Config.EnableIPv6 && s.V6.IsValid() {
		return "it has a subnet of a family that the network has off"
	}
	return q.avoided(s)
}

// second says who else's record, with another key, had something of our record r before r was there, or "".
// Two nodes that start together create such records in dual stack, and the second yields; but it may end
// before it has looked.
func (q Request) second(r lease.Record) string {
	for _, o := range q.Records {
		if o.Subnets != r.Subnets && o.Overlaps(r.Subnets) && o.Since() < r.Since() &&
			q.Self.Owns(o.Attrs) == lease.Foreign {
			return fmt.Sprintf("%s holds %s, and was there first",
				lease.DescribeOwner(o.PublishedName(), o.Node(), o.Address()), o.Subnets)
		}
	}
	return ""
}

// avoided says which address s must not contain but does, or "".
func (q Request) avoided(s lease.Subnets) string {
	for _, a := range q.Avoid {
		if s.Contains(a) {
			return fmt.Sprintf("it contains the underlay address %s", a)
		}
	}
	return ""
}

// blocked says why s cannot be created, or "".
func (q Request) blocked(s lease.Subnets) string {
	if why := q.unfit(s); why != "" {
		return why
	}
	return q.held(s, 0)
}

// held says whose record has something of s, or "". That at revision, if it is not 0, does not count.
func (q Request) held(s lease.Subnets, revision int64) string {
	for _, r := range q.Records {
		if (revision == 0 || r.Revision != revision) && r.Overlaps(s) {
			return fmt.Sprintf("%s holds %s", lease.DescribeOwner(r.PublishedName(), r.Node(), r.Address()), r.Subnets)
		}
	}
	for _, b := range q.Bad {
		if t, err := lease.ParseKey(b.Key); err == nil && t.Overlaps(s) {
			return fmt.Sprintf("the record %s does not parse: %s", b.Key, b.Detail)
		}
	}
	return ""
}

// draw picks a free subnet in each family of which c has none: the one at the same place among the free ones
// in both. So nodes that start together either draw the same record, which the store gives to one, or nothing
// in common.
func (q Request) draw(c Claim) (Claim, error) {
	n := -1
	for _, f := range q.Config.Ranges() {
		if f.Network.Addr().Is4() && c.V4.IsValid() || f.Network.Addr().Is6() && c.V6.IsValid() {
			continue
		}
		free := f.Free(q.taken(f.Network.Addr()), firstFree)
		if len(free) == 0 {
			return Claim{}, f.OutOf(len(q.Records))
		}
		if n < 0 || n >= len(free) {
			n = q.Rand.IntN(len(free))
		}
		p := free[n]
		if p.Addr().Is4() {
			c.V4 = p
		} else {
			c.V6 = p
		}
	}
	return c, nil
}

// taken returns what may not be given out, in the family of like.
func (q Request) taken(like netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	add := func(p netip.Prefix) {
		if p.IsValid() && p.Addr().BitLen() == like.BitLen() {
			all = append(all, p)
		}
	}
	for _, r := range q.Records {
		add(r.V4)
		add(r.V6)
	}
	for _, b := range q.Bad {
		if s, err := lease.ParseKey(b.Key); err == nil {
			add(s.V4)
			add(s.V6)
		}
	}
	for _, a := range q.Avoid {
		add(netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

package routing

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// claim is something that only one peer can have: an address that its datagrams come from, or on a device of
// the kernel's, where forwarding goes by it, a MAC. It is comparable.
type claim struct {
	addr netip.Addr
	mac  kernel.MAC
	six  bool // of a MAC: the device's family
}

// tenure is who has what: the subnets of the record that a claim was granted last time. A record that
// says of itself what another one has said, and has been believed for, takes nothing away from that one; else
// anybody who can write one record could cut off any node. It is immutable.
type tenure map[claim]lease.Subnets

// holds reports whether each bidder has all that it claims, and nobody has anything else: most changes of a
// record are about something else, and are not to make a new tenure of thousands.
func (t tenure) holds(bidders int, at func(i int) bidder) bool {
	n, last := 0, lease.Subnets{}
	for i := range bidders {
		b := at(i)
		if i > 0 && last == b.subnets { // two families of one record, which could claim the same
			return false
		}
		last = b.subnets
		if t[b.first] != b.subnets {
			return false
		}
		for _, c := range b.further {
			if t[c] != b.subnets {
				return false
			}
		}
		n += 1 + len(b.further)
	}
	return n > 0 && n == len(t)
}

// bidder is a record, or one family of it, with what it claims: first what it cannot do without.
type bidder struct {
	subnets lease.Subnets
	created int64 // Record.Created
	first   claim
	further []claim
}

// grant is what a bidder gets.
type grant struct {
	// by is the bidder that has the first claim, itself if it was granted.
	by int
	// lost are those of the further claims that others have, and who: pairs of indexes.
	lost [][2]int
}

// settle gives every claim to one bidder: to the one that has it already, as long as it is there and claims it;
// else first claims go before further ones, and those of records that are older in the store before younger
// ones'. It is pure and deterministic. The tenure that results holds for the next time.
func settle(bs []bidder, before tenure) ([]grant, tenure) {
	if before.holds(len(bs), func(i int) bidder { return bs[i] }) {
		grants := make([]grant, len(bs))
		for i := range grants {
			grants[i].by = i
		}
		return grants, before
	}
	has := func(b bidder, c claim) bool {
		s, ok := before[c]
		return ok && sameRecord(s, b.subnets)
	}
	order := make([]int, len(bs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := bs[i], bs[j]
		return cmp.Or(-compareBool(has(a, a.first), has(b, b.first)), compareAge(a.created, b.created))
	})
	owner := make(map[claim]int, len(bs))
	take := func(c claim, i int) int {
		if o, taken := owner[c]; taken {
			return o
		}
		owner[c] = i
		return i
	}
	grants := make([]grant, len(bs))
	for _, i := range order {
		b := bs[i]
		if grants[i].by = take(b.first, i); grants[i].by != i {
			continue
		}
		for _, c := range b.further {
			if has(b, c) {
				take(c, i)
			}
		}
	}
	for _, i := range order {
		if grants[i].by != i {
			continue
		}
		for j, c := range bs[i].further {
			if o := take(c, i); o != i {
				grants[i].lost = append(grants[i].lost, [2]int{j, o})
			}
		}
	}
	after := make(tenure, len(owner))
	for c, i := range owner {
		after[c] = bs[i].subnets
	}
	return grants, after
}

// sameRecord reports whether a record is the one that had these subnets: one of them stays when the other
// family is turned on or off.
func sameRecord(before, now lease.Subnets) bool {
	return before.V4.IsValid() && before.V4 == now.V4 || before.V6.IsValid() && before.V6 == now.V6
}

// compareAge puts the older first, and who does not say how old it is last.
func compareAge(a, b int64) int {
	return cmp.Or(compareBool(a == 0, b == 0), cmp.Compare(a, b))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

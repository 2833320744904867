package routing

import (
	"cmp"
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
)

// claim is something that only one peer can have: an address that its datagrams come from, on a device of
// the kernel's, where forwarding goes by it, a MAC, or a public key of WireGuard. It is comparable.
type claim struct {
	addr netip.Addr
	mac  kernel.MAC
	six  bool // of a MAC: the device's family
	key  wireguard.PublicKey
}

// tenure says which record holds each claim: it has the subnets of the record to which the claim was granted
// last time. A record that claims what another one was granted gets nothing from it. Otherwise anybody who
// can write one record could cut off any node. It is immutable.
type tenure map[claim]lease.Subnets

// holds reports whether each bidder has everything that it claims, and nobody has anything else. Most changes
// of records do not touch claims, and so make no new tenure, which may have thousands of entries.
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

// bidder is a record, or one family of it, with its claims. The first claim is the one that it cannot do
// without.
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
	// lost lists the further claims that others have, as pairs of indexes: of the claim, and of the bidder that
	// has it.
	lost [][2]int
}

// settle grants every claim to one bidder. The bidder that has it already keeps it, as long as it is there
// and claims it. Else a first claim goes before a further one, and the claim of a record that is older in the
// store before that of a younger one. It is pure and deterministic. The tenure that it returns is to be
// passed to the next call.
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
		switch aHas, bHas := has(a, a.first), has(b, b.first); {
		case aHas && !bHas:
			return -1
		case bHas && !aHas:
			return 1
		case a.created == 0 || b.created == 0: // an age that is unknown comes last
			return cmp.Compare(b.created, a.created)
		}
		return cmp.Compare(a.created, b.created)
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

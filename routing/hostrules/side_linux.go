package hostrules

import (
	"context"
	"reflect"
)

// Dropped counts packets that the rules have dropped.
type Dropped struct {
	// Pods counts what pods sent to the overlay's port. Strangers counts what came to the kernel's
	// vxlan from an address that is no peer's. Plain counts what came or would have left in plain where a Seal forbids it.
	Pods, Strangers, Plain uint64
}

func (d Dropped) plus(e Dropped) Dropped {
	return Dropped{d.Pods + e.Pods, d.Strangers + e.Strangers, d.Plain + e.Plain}
}

// minus returns by how much d exceeds e, which was read before it.
func (d Dropped) minus(e Dropped) Dropped {
	return Dropped{d.Pods - min(d.Pods, e.Pods), d.Strangers - min(d.Strangers, e.Strangers), d.Plain - min(d.Plain, e.Plain)}
}

// view is what an inspection of one firewall shows.
type view struct {
	// own names everything of ours, so that two views with the same text have the same rules. It is ""
	// if there is nothing.
	own string
	// forwardDrops says that the firewall does not forward what nobody accepts.
	forwardDrops bool
	dropped      Dropped
}

// firewall is one place that can hold rules, for one family.
type firewall interface {
	name() string
	// inspect reads, without a lock, a process, or a change.
	inspect() (view, error)
	// apply makes the firewall as wanted, in a transaction for each table in which something differs, and returns
	// how many there were. What does not differ keeps its counters. It is called only if something may differ.
	apply(ctx context.Context, want familyRules) (transactions int, err error)
	// generation grows by one with each transaction, whoever makes it. It stays 0 if the kernel does not count.
	generation() (uint32, error)
}

// side is a firewall with what was last done to it.
type side struct {
	firewall
	ipv6 bool
	kind kind
	// done is what apply last made, and after is the view then. Both are zero before the first
	// success: what an earlier process made is compared with what is wanted, by apply.
	done  familyRules
	after string
	known bool

	last    Dropped // when it was last inspected
	counted bool    // it was once
	dropped Dropped // since we began
}

// kind says which firewall a side is.
type kind uint8

const (
	_ kind = iota
	kindNFTables
	kindIptablesNFT
	kindIptablesLegacy
)

func (k kind) String() string {
	switch k {
	case kindNFTables:
		return "nftables"
	case kindIptablesNFT:
		return "iptables, nft flavour"
	case kindIptablesLegacy:
		return "iptables, legacy flavour"
	}
	return "unknown"
}

// count adds what was dropped since the last inspection. What the rules of an earlier process had counted before the first one is that
// process'.
func (s *side) count(v view) {
	if s.counted {
		s.dropped = s.dropped.plus(v.dropped.minus(s.last))
	}
	s.last, s.counted = v.dropped, true
}

// bring makes the side as wanted if it is not. wrote says that something had to be written, and repaired that it was as wanted
// before, and that somebody changed it.
func (s *side) bring(ctx context.Context, v view, want familyRules) (wrote, repaired bool, err error) {
	same := s.known && reflect.DeepEqual(s.done, want)
	if same && s.after == v.own || want.empty() && v.own == "" {
		return false, false, nil
	}
	after, wrote, alone, err := s.applyAlone(ctx, v, want)
	if err != nil {
		s.known = false
		return wrote, same && wrote, err
	}
	s.last = after.dropped // what the rules begin with now
	s.done, s.after, s.known = want, after.own, alone
	return wrote, same && wrote, nil
}

// applyTries bounds how often rules are written because somebody else writes too.
const applyTries = 4

// applyAlone makes the side, which was as before shows, as wanted, and returns the view then, and whether that is known to be ours alone: on
// a host where others write all the time it may not be, and then the next look compares again rule by rule. A change that somebody makes between
// our writing and the inspection would be taken for ours, and stay. So both are done again until nobody has
// changed anything in between, as far as the firewall can tell. changed says that it was written.
func (s *side) applyAlone(ctx context.Context, before view, want familyRules) (after view, changed, alone bool, err error) {
	for try := 1; ; try++ {
		from, err := s.generation()
		if err != nil {
			return view{}, changed, false, err
		}
		wrote, err := s.apply(ctx, want)
		changed = changed || wrote > 0
		if err != nil {
			return view{}, changed, false, err
		}
		if after, err = s.inspect(); err != nil {
			return view{}, changed, false, err
		}
		to, err := s.generation()
		if err != nil {
			return view{}, changed, false, err
		}
		// If nothing had to be written, the inspection before shows that nobody else wrote.
		alone = to-from == uint32(wrote) && (wrote > 0 || after.own == before.own)
		if alone || try == applyTries {
			return after, changed, alone, nil
		}
		before = after
	}
}

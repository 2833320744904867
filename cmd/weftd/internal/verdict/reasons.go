// Package verdict says what follows from a control.Snapshot: why the node is not ready, and what an operator
// should know although it is. Its functions are pure.
package verdict

import (
	"cmp"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
)

// storeGrace is how long the store may be silent before the node is not ready: a
// restart of etcd or the choice of a leader is over by then.
const storeGrace = 30 * time.Second

// Reasons lists why the node is not ready, most fundamental first. With none the lease is held, routes are in
// place, the store was seen lately, unless the subnet outlasts that, and container runtimes can read the
// subnet.
func Reasons(s *control.Snapshot) (out []control.Verdict) {
	if s.Waiting != "" {
		return []control.Verdict{control.Waiting.Say(s.Waiting)}
	}
	if why, ok := store(s); ok && !outlasts(s) {
		out = append(out, why)
	}
	if !s.Compared {
		out = append(out, control.ConfigUnread.Say(s.Source.Where))
	}
	unheard := s.Lease.State == lease.Unconfirmed && s.Lease.StoreSeen.IsZero()
	if s.Lease.State != lease.Held && !(unheard && outlasts(s)) {
		why := s.Lease.State.String()
		if s.Lease.Err != nil {
			why += ": " + s.Lease.Err.Error()
		}
		out = append(out, control.LeaseNotHeld.Say(why))
	}
	return append(out, Broken(s)...)
}

// Started reports whether the service manager may start programs that need the network, so long after weftd's
// start: the node is ready, or it carries packets by its last state and the store has not answered at all.
func Started(s *control.Snapshot, reasons []control.Verdict, after time.Duration) bool {
	return len(reasons) == 0 || after > storeGrace && s.Lease.StoreSeen.IsZero() && len(Broken(s)) == 0
}

// Broken lists the reasons why pods on this node have no network, whether or not the store answers.
func Broken(s *control.Snapshot) (out []control.Verdict) {
	if s.Waiting != "" {
		return []control.Verdict{control.Waiting.Say(s.Waiting)}
	}
	switch b := &s.Backend; {
	case b.UnderlayLost != "":
		out = append(out, control.UnderlayLost.Say(b.UnderlayLost))
	case b.InPlace:
	case b.LastError != "":
		out = append(out, control.RoutesFailing.Say(b.LastError))
	default:
		out = append(out, control.RoutesPending.Say())
	}
	if s.SubnetFile != "" {
		out = append(out, control.SubnetFileFails.Say(s.SubnetFile))
	}
	if r := &s.Backend.Rules; s.NeedsRules && !r.InPlace && r.LastError != "" {
		out = append(out, control.RulesFailing.Say(r.LastError))
	}
	return out
}

// outlasts reports whether the store is silent and our subnet outlasts that. A store that refuses us is not
// silent, and one behind our own overlay stays so.
func outlasts(s *control.Snapshot) bool {
	st := &s.Lease
	return s.Source.Assigns && st.Own.Subnets != (lease.Subnets{}) && st.StoreErr != nil && !st.StoreRefuses &&
		s.StoreCut == ""
}

// store says what is wrong with the store, if anything is.
func store(s *control.Snapshot) (control.Verdict, bool) {
	why := "no answer"
	st := &s.Lease
	if st.StoreErr != nil {
		why = st.StoreErr.Error()
	}
	if s.StoreCut != "" {
		why = s.StoreCut + " (" + why + ")"
	}
	name := cmp.Or(s.Source.Name, "store")
	since := func(t time.Time) time.Duration { return s.At.Sub(t).Truncate(time.Second) }
	failing := st.StoreErr != nil && !st.StoreSince.IsZero()
	lasting := failing && s.At.Sub(st.StoreSince) > storeGrace
	switch seen := st.StoreSeen; {
	case st.StoreRefuses && (st.State != lease.Held || seen.IsZero() || lasting):
		// a refusal is an answer: when it last served us does not matter
		return control.StoreRefuses.Say(name, why), true
	case seen.IsZero():
		return control.StoreUnheard.Say(name, why), true
	case lasting && seen.After(st.StoreSince):
		return control.StoreFailing.Say(name, since(st.StoreSince), why), true
	case st.StoreErr != nil && s.At.Sub(seen) > storeGrace:
		return control.StoreSilent.Say(name, since(seen), why), true
	}
	return control.Verdict{}, false
}

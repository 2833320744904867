package ops

import (
	"cmp"
	"slices"
	"time"

	"weft/lease"
	"weft/routing"
)

// storeGrace is how long the store may be silent before the node is not ready: a
// restart of etcd or the choice of a leader is over by then.
const storeGrace = 30 * time.Second

// State is everything from which the readiness follows.
type State struct {
	// Waiting says what weftd waits for before it can keep lease and backend; "" once it does.
	Waiting string
	// Source is the store's name in messages; "" means store.
	Source string
	// Assigned says that the cluster gives the subnet and takes it back only by deleting the node: pods keep their
	// network while the store is silent.
	Assigned bool
	// Lease and Backend count only if Waiting is "".
	Lease   lease.Status
	Backend routing.Status
	// Config says what is still unknown about the network configuration; "" if nothing is.
	Config string
	// StoreCut says why the overlay cuts this host off from the store; "" if it does not.
	StoreCut string
	// SubnetFile says why the subnet file is not written; "" if it is.
	SubnetFile string
	// Rules says why the firewall rules keep pods from having a network; "" if they do not.
	Rules string
}

// Reasons lists why the node is not ready at now, most fundamental first; none
// means that it is: the lease is held, routes are in place, the store was seen
// lately, unless the subnet outlasts that, and container runtimes can read the subnet.
func (s State) Reasons(now time.Time) []string {
	if s.Waiting != "" {
		return []string{s.Waiting}
	}
	var out []string
	if why := s.store(now); why != "" && !s.outlasts() {
		out = append(out, s.source()+": "+why)
	}
	if s.Config != "" {
		out = append(out, "config: "+s.Config)
	}
	unheard := s.Lease.State == lease.Unconfirmed && s.Lease.StoreSeen.IsZero()
	if s.Lease.State != lease.Held && !(unheard && s.outlasts()) {
		why := "lease: " + s.Lease.State.String()
		if s.Lease.Err != nil {
			why += ": " + s.Lease.Err.Error()
		}
		out = append(out, why)
	}
	return append(out, s.Broken()...)
}

// Notes lists what is to be seen to although pods have a network.
func (s State) Notes(now time.Time) []string {
	if s.Waiting != "" || !s.Assigned {
		return nil
	}
	out := slices.Clone(s.Lease.Notes)
	if why := s.store(now); why != "" && s.outlasts() {
		out = append(out, s.source()+": "+why)
	}
	return out
}

// outlasts reports whether the store is silent and our subnet outlasts that. A store that refuses us is not silent, and
// one behind our own overlay stays so.
func (s State) outlasts() bool {
	st := s.Lease
	return s.Assigned && st.Own.Subnets != (lease.Subnets{}) && st.StoreErr != nil && !st.StoreRefuses && s.StoreCut == ""
}

func (s State) source() string { return cmp.Or(s.Source, "store") }

// Broken lists the reasons why pods on this node have no network, whether or not the store
// answers.
func (s State) Broken() []string {
	if s.Waiting != "" {
		return []string{s.Waiting}
	}
	var out []string
	switch b := s.Backend; {
	case b.UnderlayLost != "":
		out = append(out, "underlay: "+b.UnderlayLost)
	case b.InPlace:
	case b.LastError != "":
		out = append(out, "routes: "+b.LastError)
	default:
		out = append(out, "routes: not in place yet")
	}
	if s.SubnetFile != "" {
		out = append(out, "subnet file: "+s.SubnetFile)
	}
	if s.Rules != "" {
		out = append(out, "rules: "+s.Rules)
	}
	return out
}

func (s State) store(now time.Time) string {
	why := "no answer"
	if s.Lease.StoreErr != nil {
		why = s.Lease.StoreErr.Error()
	}
	if s.StoreCut != "" {
		why = s.StoreCut + " (" + why + ")"
	}
	st := s.Lease
	failing, held := st.StoreErr != nil && !st.StoreSince.IsZero(), st.State == lease.Held
	switch seen := st.StoreSeen; {
	case st.StoreRefuses && (!held || seen.IsZero() || failing && now.Sub(st.StoreSince) > storeGrace):
		return "refuses us: " + why // a refusal is an answer, so that the time of the last success does not matter
	case seen.IsZero():
		return why
	case failing && seen.After(st.StoreSince) && now.Sub(st.StoreSince) > storeGrace:
		return "has not served us for " + now.Sub(st.StoreSince).Truncate(time.Second).String() + ": " + why
	case s.Lease.StoreErr != nil && now.Sub(seen) > storeGrace:
		return "silent for " + now.Sub(seen).Truncate(time.Second).String() + ": " + why
	}
	return ""
}

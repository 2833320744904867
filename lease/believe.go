package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Memory is the last good state of the store, as far as we believe it. It is a
// value: Believe returns a new one and shares only what is never changed.
type Memory struct {
	// ClusterID and Revision are those of the last snapshot.
	ClusterID string
	Revision  int64
	// Config is the last raw configuration that was present; nil before the first.
	Config []byte
	// Peers are the records that we go by, sorted by subnets: all of the last
	// snapshot, and those whose removal is not believed.
	Peers []Remembered
	// Why says what made the store untrustworthy when the first of the held records
	// was lost; "" if none is held.
	Why string
}

// Remembered is a record with what we know about its life.
type Remembered struct {
	Record
	// Until is when the record ends if nobody renews it: the store's word, or TTL
	// after it was last seen. Always set.
	Until time.Time
	// Held says that the store has lost the record in a way that is not believed; it
	// then lives until Until.
	Held bool `json:",omitempty"`
}

// Alarm says that removals are being disbelieved, and why; "" if none are.
func (m Memory) Alarm() string {
	held, last := 0, time.Time{}
	for _, p := range m.Peers {
		if p.Held {
			held++
			if p.Until.After(last) {
				last = p.Until
			}
		}
	}
	if held == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d records that it lost are kept, the last until %s", m.Why, held, last.UTC().Format(time.RFC3339))
}

// NextEnd is when the first held record ends; the zero time if none is held.
func (m Memory) NextEnd() time.Time {
	var next time.Time
	for _, p := range m.Peers {
		if p.Held && (next.IsZero() || p.Until.Before(next)) {
			next = p.Until
		}
	}
	return next
}

// Records returns the records that we go by; the slice is new.
func (m Memory) Records() []Record {
	out := make([]Record, 0, len(m.Peers))
	for _, p := range m.Peers {
		out = append(out, p.Record)
	}
	return out
}

// Believe returns what to go by after s was read at now. What the store has is
// always believed. That it has a record no longer is believed only if it is the
// store that had it: the same cluster, at a revision not below, and with a
// configuration. A record lost in another way is held until its last known end,
// or until its owner or its subnet shows up elsewhere; and so is one whose value
// has become garbage, which takes nothing away either.
func Believe(prev Memory, s Snapshot, now time.Time) Memory {
	next := Memory{ClusterID: s.ClusterID, Revision: s.Revision, Config: prev.Config, Why: prev.Why}
	if s.Config != nil {
		next.Config = s.Config
	}
	before := make(map[Subnets]Remembered, len(prev.Peers))
	for _, p := range prev.Peers {
		before[p.Subnets] = p
	}
	present := newPresence()
	for _, r := range s.Records {
		was := before[r.Subnets]
		next.Peers = append(next.Peers, Remembered{Record: r, Until: until(r, was, now)})
		present.add(r, was.Subnets == r.Subnets && was.Node() == r.Node())
	}
	distrust, garbage := prev.distrust(s), badKeys(s.Bad)
	for _, p := range prev.Peers {
		if present.keys[p.Subnets] || present.replaces(p.Record) {
			continue
		}
		why := distrust
		if why == "" && garbage[p.Key()] {
			why = fmt.Sprintf("the record %s does not parse", p.Key())
		}
		if why == "" && !p.Held {
			continue
		}
		if next.Why == "" {
			next.Why = why
		}
		p.Held = true
		next.Peers = append(next.Peers, p)
	}
	return next.Expire(now)
}

// Expire returns m without the held records that have ended by now.
func (m Memory) Expire(now time.Time) Memory {
	m.Peers = slices.DeleteFunc(slices.Clone(m.Peers), func(p Remembered) bool {
		return p.Held && !now.Before(p.Until)
	})
	slices.SortFunc(m.Peers, func(a, b Remembered) int { return a.Compare(b.Subnets) })
	if !slices.ContainsFunc(m.Peers, func(p Remembered) bool { return p.Held }) {
		m.Why = ""
	}
	return m
}

// distrust says why s may not take records away, or "".
func (m Memory) distrust(s Snapshot) string {
	switch {
	case m.ClusterID == "":
		return "" // nothing was known, so nothing can be missing
	case s.ClusterID != m.ClusterID:
		return fmt.Sprintf("the store is another cluster (%s, before %s)", s.ClusterID, m.ClusterID)
	case s.Revision < m.Revision:
		return fmt.Sprintf("the store went back from revision %d to %d", m.Revision, s.Revision)
	case s.Config == nil:
		return "the store has no network configuration"
	}
	return ""
}

func badKeys(bad []Rejected) map[string]bool {
	keys := make(map[string]bool, len(bad))
	for _, b := range bad {
		keys[b.Key] = true
	}
	return keys
}

// until is when r ends. A store that does not say is taken to have just renewed
// it, unless nothing about the record has changed.
func until(r Record, before Remembered, now time.Time) time.Time {
	switch {
	case !r.Expires.IsZero():
		return r.Expires
	case !before.Until.IsZero() && before.Revision == r.Revision && !r.Reservation && now.Before(before.Until):
		return before.Until
	}
	return now.Add(TTL)
}

// presence knows which owners and subnets the store has.
type presence struct {
	keys  map[Subnets]bool
	nodes map[string]bool
	addrs map[netip.Addr]bool // of records without identity
	fresh []Subnets           // of records that were not there before
}

func newPresence() presence {
	return presence{keys: map[Subnets]bool{}, nodes: map[string]bool{}, addrs: map[netip.Addr]bool{}}
}

func (p *presence) add(r Record, old bool) {
	p.keys[r.Subnets] = true
	if n := r.Node(); n != "" {
		p.nodes[n] = true
	} else {
		p.addrs[r.Address()] = true
	}
	if !old {
		p.fresh = append(p.fresh, r.Subnets)
	}
}

// replaces reports whether the lost record r is refuted by what is present: its
// owner has another subnet now, or its subnet a new owner. A record that
// overlapped it all along refutes nothing.
func (p *presence) replaces(r Record) bool {
	if n := r.Node(); n != "" && p.nodes[n] || n == "" && p.addrs[r.Address()] {
		return true
	}
	return slices.ContainsFunc(p.fresh, r.Overlaps)
}

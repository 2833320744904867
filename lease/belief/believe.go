package belief

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/lease"
)

// Memory is the last good state of the store that this node believes. It is a value: Believe returns a new
// one, and shares only parts that are never changed.
type Memory struct {
	// ClusterID is that of the last snapshot. Revision is its own, or that of a write of ours since.
	ClusterID string
	Revision  int64
	// Config is the raw configuration in use; nil before the first.
	Config []byte
	// Peers lists the records in use, sorted by subnets: all of the last snapshot, and those whose removal is
	// not believed.
	Peers []Remembered
	// Why is the reason for which the store was not believed when it lost the first of the held records; ""
	// if none is held.
	Why string
}

// Remembered is a record with what we know about its life.
type Remembered struct {
	// Record is shared with others, and never changed.
	*lease.Record
	// Until is the time at which the record ends without renewal: by the store's word, or TTL after it was
	// last seen. It is always set.
	Until time.Time
	// Held means that the store has lost the record, and that this is not believed. The record then lives
	// until Until.
	Held bool `json:",omitempty"`
	// Leaving means that the record was removed a moment ago. A living node writes it again before Until,
	// without losing a packet.
	Leaving bool `json:",omitempty"`
}

// removalGrace is how long a removed record still counts, if nobody else has taken its place.
const removalGrace = time.Second

// Alarm says that removals are not believed, and why; "" if none are.
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
	return fmt.Sprintf("%s: %d records that it lost are kept, the last until %s", m.Why, held,
		last.UTC().Format(time.RFC3339))
}

// NextEnd returns the time at which the first record ends that is missing in the store; zero if none is
// missing.
func (m Memory) NextEnd() time.Time {
	var next time.Time
	for _, p := range m.Peers {
		if (p.Held || p.Leaving) && (next.IsZero() || p.Until.Before(next)) {
			next = p.Until
		}
	}
	return next
}

// Records returns the records in use, in a new slice.
func (m Memory) Records() []lease.Record {
	out := make([]lease.Record, 0, len(m.Peers))
	for _, p := range m.Peers {
		out = append(out, *p.Record)
	}
	return out
}

// Believe returns the state to use after s was read at now. It always believes the records of s. It believes
// a removal only of the store that had the record: the same cluster, at a revision that is not lower, and
// with a configuration. The removal counts a second later, because a living node writes its record again. A
// record that is lost otherwise, or whose value became garbage, is held until its last known end, or until
// its owner or its subnet appears elsewhere.
func Believe(prev Memory, s lease.Snapshot, now time.Time) Memory {
	next := Memory{ClusterID: s.ClusterID, Revision: s.Revision, Config: prev.Config, Why: prev.Why}
	if s.Config != nil {
		next.Config = s.Config
	}
	next.Peers = make([]Remembered, 0, len(s.Records))
	lost := len(prev.Peers)
	seen := make([]bool, lost) // of prev.Peers
	for _, r := range s.Records {
		i, known := prev.find(r.Subnets)
		var was Remembered
		if known {
			was = prev.Peers[i]
			if !seen[i] {
				seen[i] = true
				lost--
			}
		}
		next.Peers = append(next.Peers, Remembered{Record: r, Until: until(r, was, now)})
	}
	if lost > 0 {
		next.hold(prev, s, seen, now)
	}
	slices.SortFunc(next.Peers, compareRemembered)
	return next.Expire(now)
}

// hold keeps those of the peers of prev, beside the seen ones, whose removal by s is not believed.
func (m *Memory) hold(prev Memory, s lease.Snapshot, seen []bool, now time.Time) {
	present := newPresence()
	for _, r := range s.Records {
		i, known := prev.find(r.Subnets)
		present.add(*r, known && prev.Peers[i].Node() == r.Node())
	}
	distrust, garbage := prev.distrust(s), badKeys(s.Bad)
	for i, p := range prev.Peers {
		if seen[i] || present.replaces(*p.Record) {
			continue
		}
		why := distrust
		if why == "" && garbage[p.RecordName()] {
			why = fmt.Sprintf("the record %s does not parse", p.RecordName())
		}
		if why == "" && !p.Held {
			if !p.Leaving {
				p.Leaving, p.Until = true, now.Add(removalGrace)
			}
			m.Peers = append(m.Peers, p)
			continue
		}
		if m.Why == "" {
			m.Why = why
		}
		p.Held, p.Leaving = true, false
		m.Peers = append(m.Peers, p)
	}
}

// find looks among the peers, which are sorted.
func (m Memory) find(s lease.Subnets) (int, bool) {
	return slices.BinarySearchFunc(m.Peers, s, func(p Remembered, s lease.Subnets) int { return p.Compare(s) })
}

func compareRemembered(a, b Remembered) int { return a.Compare(b.Subnets) }

// Expire returns m without the records that are missing in the store and have ended by now. It copies m only
// if there are any.
func (m Memory) Expire(now time.Time) Memory {
	ended := func(p Remembered) bool { return (p.Held || p.Leaving) && !now.Before(p.Until) }
	if slices.ContainsFunc(m.Peers, ended) || !slices.IsSortedFunc(m.Peers, compareRemembered) {
		m.Peers = slices.DeleteFunc(slices.Clone(m.Peers), ended)
		slices.SortFunc(m.Peers, compareRemembered)
	}
	if !slices.ContainsFunc(m.Peers, func(p Remembered) bool { return p.Held }) {
		m.Why = ""
	}
	return m
}

// distrust says why s may not take records away, or "".
func (m Memory) distrust(s lease.Snapshot) string {
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

func badKeys(bad []lease.Rejected) map[string]bool {
	keys := make(map[string]bool, len(bad))
	for _, b := range bad {
		keys[b.Key] = true
	}
	return keys
}

// until is when r ends. A store that does not say is taken to have just renewed
// it, unless it counts revisions and nothing about the record has changed.
func until(r *lease.Record, before Remembered, now time.Time) time.Time {
	switch {
	case !r.Expires.IsZero():
		return r.Expires
	case !before.Until.IsZero() && before.Revision == r.Revision && r.Revision != 0 && !r.Reservation &&
		now.Before(before.Until):
		return before.Until
	}
	return now.Add(lease.TTL)
}

// presence knows which owners the store has.
type presence struct {
	nodes map[string]bool
	addrs map[netip.Addr]bool // of records without identity
	kube  map[string]bool     // Node objects, which are named by the store and not by themselves
	fresh []lease.Subnets     // of records that were not there before
}

func newPresence() presence {
	return presence{nodes: map[string]bool{}, addrs: map[netip.Addr]bool{}, kube: map[string]bool{}}
}

func (p *presence) add(r lease.Record, old bool) {
	switch n := r.Node(); {
	case r.Kube != nil:
		p.kube[r.Kube.Name] = true
	case n != "":
		p.nodes[n] = true
	default:
		p.addrs[r.Address()] = true
	}
	if !old {
		p.fresh = append(p.fresh, r.Subnets)
	}
}

// replaces reports whether the lost record r is refuted by what is present: its
// owner has another subnet now, or its subnet a new owner. A record that
// overlapped it all along refutes nothing.
func (p *presence) replaces(r lease.Record) bool {
	elsewhere := false
	switch n := r.Node(); {
	case r.Kube != nil:
		elsewhere = p.kube[r.Kube.Name]
	case n != "":
		elsewhere = p.nodes[n]
	default:
		elsewhere = p.addrs[r.Address()]
	}
	return elsewhere || slices.ContainsFunc(p.fresh, r.Overlaps)
}

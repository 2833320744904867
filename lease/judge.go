package lease

import (
	"fmt"
	"slices"
)

// holding is the record that we hold, and what tells our writes from another's.
type holding struct {
	Record
	// cluster is the store in which Revision counts; "" until a store has confirmed
	// the holding, as after a start from the cache.
	cluster string
	// unsure are the attributes of writes whose outcome is not known.
	unsure []Attrs
	// fresh says that we created the record and have not yet looked whether another
	// node created a conflicting one just before.
	fresh bool
}

// verdict is what a snapshot says about our record.
type verdict uint8

const (
	_ verdict = iota
	// verdictHeld: the store has it as we wrote it.
	verdictHeld
	// verdictRewrite: it is there and may be written at the revision found.
	verdictRewrite
	// verdictGone: the store has no such record, and nothing in its place.
	verdictGone
	// verdictTaken: another owner has the subnet. The error is a *TakenError.
	verdictTaken
	// verdictCloned: another process writes as us. The error is a *ClonedError.
	verdictCloned
	// verdictGarbled: there is something under our key that does not parse, which is no owner.
	verdictGarbled
)

// judge compares what we hold with what the store has. found is the record under
// our key; of a garbled one only the revision is known, if that.
func (h holding) judge(self Self, s Snapshot) (v verdict, found Record, err error) {
	for _, r := range s.Records {
		if r.Subnets == h.Subnets {
			v, err = h.judgeRecord(self, s.ClusterID, r)
			return v, r, err
		}
	}
	for _, b := range s.Bad {
		if b.Key == h.Key() {
			return verdictGarbled, Record{Revision: b.Revision}, fmt.Errorf("our record %s was overwritten: %s", b.Key, b.Detail)
		}
	}
	for _, r := range s.Records {
		if r.Overlaps(h.Subnets) && self.Owns(r.Attrs) != Ours {
			return verdictTaken, r, h.taken(r)
		}
	}
	return verdictGone, Record{}, nil
}

func (h holding) judgeRecord(self Self, cluster string, r Record) (verdict, error) {
	switch self.Owns(r.Attrs) {
	case Rival, Foreign:
		return verdictTaken, h.taken(r)
	case Adoptable:
		return verdictRewrite, nil
	case Ours:
	}
	sameAs := func(a Attrs) bool { return a.Equal(r.Attrs) }
	switch {
	case h.cluster != cluster, r.Revision < h.Revision:
		// We have just started, or the store has: its record of us is simply ours.
		return verdictRewrite, nil
	case r.Revision == h.Revision, slices.ContainsFunc(h.unsure, sameAs):
		return verdictHeld, nil
	case r.Reservation && sameAs(h.Attrs):
		// Putting the same value without a TTL is how an operator reserves a subnet.
		return verdictHeld, nil
	}
	return verdictCloned, &ClonedError{Node: self.Node, Subnets: r.Subnets, Address: r.Address(), Revision: r.Revision}
}

func (h holding) taken(r Record) error {
	return &TakenError{Subnets: h.Subnets, By: r.Node(), Address: r.Address(), Their: r.Subnets}
}

// beaten looks for a record that was there when we created ours and that we had
// not seen: in dual stack two keys can differ and still overlap, and two nodes
// with one address can start together. The later one yields.
func (h holding) beaten(self Self, s Snapshot) error {
	for _, r := range s.Records {
		if r.Subnets == h.Subnets || r.Revision > h.Revision {
			continue
		}
		switch owns := self.Owns(r.Attrs); {
		case owns == Rival:
			return &RivalError{Ours: self.Node, Theirs: r.Node(), Subnets: r.Subnets, Address: r.Address()}
		case owns != Ours && r.Overlaps(h.Subnets):
			return fmt.Errorf("%w: %s was there first", ErrConflict, r.Subnets)
		}
	}
	return nil
}

package keeper

import (
	"fmt"
	"slices"

	"weft/lease"
)

// verdict is what a snapshot says about our record.
type verdict uint8

const (
	_ verdict = iota
	// verdictHeld: the store has it as we wrote it.
	verdictHeld
	// verdictRewrite: it is there and may be written at the revision found.
	verdictRewrite
	// verdictGone: the store has no such record, and only records of silent owners overlap it.
	verdictGone
	// verdictTaken: a record of another identity is in the place of ours.
	verdictTaken
	// verdictTwin: another process has written it with our identity, from another address or
	// another state directory.
	verdictTwin
	// verdictGarbled: there is something under our key that does not parse, which is no owner.
	verdictGarbled
)

// judge compares what we hold with what the store has. found is the record under
// our key, or in its place; of a garbled one only the revision is known, if that. The owners of
// the records in silent, at their revisions, were asked for and did not answer.
func (h *holding) judge(self lease.Self, s lease.Snapshot, silent map[lease.Subnets]int64) (
	v verdict, found lease.Record, err error) {
	for _, r := range s.Records {
		if r.Subnets == h.Subnets {
			return h.judgeRecord(self, s.ClusterID, *r, silent), *r, nil
		}
	}
	for _, b := range s.Bad {
		if b.Key == h.Key() {
			return verdictGarbled, lease.Record{Revision: b.Revision},
				fmt.Errorf("our record %s was overwritten: %s", b.Key, b.Detail)
		}
	}
	for _, r := range s.Records {
		if r.Overlaps(h.Subnets) && self.Owns(r.Attrs) != lease.Ours && !isSilent(silent, *r) {
			return verdictTaken, *r, nil
		}
	}
	return verdictGone, lease.Record{}, nil
}

func (h *holding) judgeRecord(self lease.Self, cluster string, r lease.Record,
	silent map[lease.Subnets]int64) verdict {
	switch owns := self.Owns(r.Attrs); {
	case isSilent(silent, r), owns == lease.Adoptable:
		return verdictRewrite
	case owns != lease.Ours:
		return verdictTaken
	case h.isOurs(cluster, r):
		return verdictHeld
	case self.Recognises(r.Attrs):
		// We have just started, or the store has; or somebody writes what we do not say.
		return verdictRewrite
	}
	return verdictTwin
}

// isSilent reports whether the owner of r, as it stands, was asked for and did not answer.
func isSilent(silent map[lease.Subnets]int64, r lease.Record) bool {
	at, ok := silent[r.Subnets]
	return ok && at == r.Revision
}

// reused reports whether the store, which is not behind us, has under our key what was written before our
// record was, or at our revision what we did not write: it went back, and has come as far again by what
// others wrote.
func (h *holding) reused(s lease.Snapshot) bool {
	return h.cluster == s.ClusterID && s.Revision >= h.Revision &&
		slices.ContainsFunc(s.Records, func(r *lease.Record) bool {
			return r.Subnets == h.Subnets && (r.Revision < h.Revision || r.Revision == h.Revision &&
				!r.Attrs.Equal(h.Attrs))
		})
}

func (h *holding) taken(r lease.Record) error {
	return &lease.TakenError{Subnets: h.Subnets, By: r.Node(), ByName: r.PublishedName(), Address: r.Address(),
		Their: r.Subnets}
}

// beaten looks for a record that was there when we created ours and that we had not seen: in dual stack two
// keys can differ and still overlap, and two nodes with one address can start together. The later one yields.
// The former owner, who has put the record back, yields only to a node that has the subnet since it was last
// seen: not to who came while ours was there.
func (h *holding) beaten(self lease.Self, s lease.Snapshot, before bool) error {
	for _, r := range s.Records {
		if r.Subnets == h.Subnets || r.Since() > h.Since() {
			continue
		}
		switch owns := self.Owns(r.Attrs); {
		case before && (owns == lease.Ours || !r.Overlaps(h.Subnets) || r.Since() <= h.seen):
		case owns == lease.Rival:
			return &lease.RivalError{Ours: self.Node, Theirs: r.Node(), TheirName: r.PublishedName(),
				Subnets: r.Subnets, Address: r.Address()}
		case owns != lease.Ours && r.Overlaps(h.Subnets), owns == lease.Ours && !self.Recognises(r.Attrs):
			return fmt.Errorf("%w: %s was there first", lease.ErrConflict, r.Subnets)
		}
	}
	return nil
}

package keeper

import (
	"cmp"
	"slices"
	"time"

	"weft/lease"
)

// tenure is how we have our subnet, if we have one. A contest, or somebody who writes over our record again
// and again, is another matter, and so is a record that we have created and not verified yet: until then
// the tenure is what it was before.
type tenure uint8

const (
	// tenureSeeking: there was no subnet since the start.
	tenureSeeking tenure = iota
	// tenureRaceLost: we created a record, and another's was there first.
	tenureRaceLost
	// tenureLost: another owner has the subnet, and we have given it up.
	tenureLost
	// tenureFromCache: it is in the cached state, and no store has said anything about it.
	tenureFromCache
	// tenureHeld: the store has had our record since the start, and had it when it was last heard, or it is to
	// be put back.
	tenureHeld
	// tenureEnded: as tenureHeld, but its time is over, which has been said.
	tenureEnded
	// tenureGone: the store has it no more, after its time was over.
	tenureGone
)

// own is our subnet, and the record of it.
type own struct {
	tenure   tenure
	held     *holding      // nil while we have no subnet
	previous lease.Subnets // what to ask for when held is nil
	written  lease.Attrs   // what the store's record of us says
	renew    time.Time     // when held is due; zero for a reservation
}

// holding is the record that we hold, and what tells our writes from another's. Its Revision is
// where the store last had it as we wrote it.
type holding struct {
	lease.Record
	// at is the revision of what is under our key, for the next write: Revision, unless somebody
	// has written over ours; 0 if nothing is there.
	at int64
	// seen is the last revision at which the store was seen with our record as we wrote it; 0 if it is another
	// store since.
	seen int64
	// back says that ours is to be put back there.
	back bool
	// beside are silent owners' records, under other keys, that have a part of our subnets and go when ours is
	// put back: an owner that came again and found its record would hold what we hold.
	beside []lease.Record
	// cluster is the store in which Revision counts; "" until a store has confirmed
	// the holding, as after a start from the cache.
	cluster string
	// unsure are the attributes of writes whose outcome is not known.
	unsure []lease.Attrs
}

// recall takes up what we held in the last run.
func (o *own) recall(r lease.Record) {
	o.tenure, o.held, o.previous = tenureFromCache, &holding{Record: r, at: r.Revision}, r.Subnets
}

// drop gives the subnet up. It is what we ask for first when we acquire again.
func (o *own) drop(to tenure) {
	if o.held != nil && to == tenureLost {
		o.previous = o.held.Subnets
	}
	if o.tenure != tenureLost {
		o.tenure = to
	}
	o.held = nil
}

// record is what we hold; zero for nothing.
func (o *own) record() lease.Record {
	if o.held == nil {
		return lease.Record{}
	}
	return o.held.Record
}

// overdue reports whether the time of what we hold is over.
func (o *own) overdue(now time.Time) bool {
	return o.held != nil && !o.held.Reservation && !now.Before(o.held.Expires)
}

// confirmed reports whether a store has had our record since the start.
func (o *own) confirmed() bool { return o.held != nil && o.held.cluster != "" }

// valid reports whether the store has had our record since the start, and it has not run out.
func (o *own) valid(now time.Time) bool { return o.confirmed() && !o.overdue(now) }

// revision is where the store last had our record as we wrote it; 0 if it has not since the start.
func (o *own) revision() int64 {
	if !o.confirmed() {
		return 0
	}
	return o.held.Revision
}

// forgetRevision notes that the store is another one, or has gone back: what it counts now says nothing of
// when it had our record. Who asks with a revision that the store has not reached would be answered by
// nobody, and take what another has who lives.
func (o *own) forgetRevision() {
	if o.held != nil {
		o.held.Revision, o.held.seen = 0, 0
	}
}

// due reports whether the held record has to be written, to say a.
func (o *own) due(now time.Time, a lease.Attrs) bool {
	return o.held != nil && (!o.renew.IsZero() && !now.Before(o.renew) || !o.written.Equal(a))
}

// found takes over what the store says about the record that we hold. It reports whether the time of the
// next renewal has to be set.
func (o *own) found(r lease.Record, cluster string) (moved bool) {
	h := o.held
	known := h.Expires
	if r.Expires.IsZero() && !r.Reservation {
		r.Expires = known
	}
	moved = r.Revision != h.Revision || r.Expires.Sub(known).Abs() > time.Minute || r.Reservation
	h.Record, h.cluster, h.unsure = r, cluster, nil
	h.at, h.back = r.Revision, false
	o.written = r.Attrs
	return moved
}

// wrote notes in h, which may be what we hold, that the store has it.
func (o *own) wrote(h *holding, a lease.Attrs, revision int64, expires time.Time) {
	h.Attrs, h.Revision, h.Created, h.unsure = a, revision, cmp.Or(h.Created, revision), nil
	h.at, h.back = revision, false
	h.Expires = expires
	o.written = a
}

// isOurs reports whether r, which has our identity, is h as we wrote it.
func (h *holding) isOurs(cluster string, r lease.Record) bool {
	sameAs := func(a lease.Attrs) bool { return a.Equal(r.Attrs) }
	// Putting the same value without a TTL is how an operator reserves a subnet.
	return h.cluster == cluster && (r.Revision == h.Revision || slices.ContainsFunc(h.unsure, sameAs) ||
		r.Reservation && sameAs(h.Attrs))
}

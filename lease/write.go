package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// needsAcquire reports whether the store has no record that we know to be ours.
func (k *Keeper) needsAcquire() bool {
	return k.held == nil || k.held.cluster == "" || k.gone
}

// due reports whether the held record has to be written.
func (k *Keeper) due(now time.Time) bool {
	return !k.renew.IsZero() && !now.Before(k.renew) || !k.written.Equal(k.currentLocal().Attrs)
}

// pending reports whether there is work for the store, now or after the back-off.
func (k *Keeper) pending(now time.Time) bool {
	return k.contest != nil || k.doubt || k.seed || k.needsAcquire() || k.held.fresh || k.due(now)
}

// notBefore is when the next piece of work may be done.
func (k *Keeper) notBefore() time.Time {
	at := k.retry
	if k.putBacks.next.After(at) {
		at = k.putBacks.next
	}
	if k.contest != nil && k.contest.next.After(at) {
		at = k.contest.next
	}
	return at
}

// advance does the next piece of work with the store, if any is due. An error has
// been reported and the time of the next try set.
func (k *Keeper) advance(ctx context.Context) error {
	now := time.Now()
	if !k.pending(now) || now.Before(k.notBefore()) {
		return nil
	}
	err := k.work(ctx)
	if err != nil {
		k.fail(ctx, err)
	}
	return err
}

func (k *Keeper) work(ctx context.Context) error {
	if k.doubt || k.seed || k.needsAcquire() || k.held.fresh {
		s, err := k.read(ctx)
		if err != nil {
			return err
		}
		k.observe(s)
		k.doubt = false
		switch {
		case k.seed:
			k.seed, k.doubt = false, true
			return k.store.CreateConfig(ctx, k.o.Seed)
		case k.contest != nil:
			return k.inquire(ctx)
		case k.needsAcquire():
			return k.acquire(ctx, s)
		case k.held.fresh:
			return k.verify(ctx, s)
		}
	}
	if k.contest != nil {
		return k.inquire(ctx)
	}
	if time.Now().Before(k.notBefore()) { // what was read has put it off
		return nil
	}
	if k.due(time.Now()) {
		return k.rewrite(ctx)
	}
	k.succeeded()
	return nil
}

// acquire claims a subnet on the strength of s.
func (k *Keeper) acquire(ctx context.Context, s Snapshot) error {
	var changed *ConfigChangedError
	if !k.began && errors.As(k.status.ConfigErr, &changed) { // only this goroutine writes it
		return changed
	}
	local := k.currentLocal()
	claim, err := Plan(Request{
		Config: k.o.Config, Self: k.self(), Records: s.Records, Bad: s.Bad, Twins: k.twins(s),
		Previous: k.previous, Avoid: slices.Concat(local.Underlay, local.Store), Rand: k.o.Rand,
	})
	if err != nil {
		return err
	}
	if claim.Kind == ClaimFree && s.Config == nil {
		return ErrNoConfig
	}
	h := &holding{Record: claim.Current, cluster: s.ClusterID, at: claim.Current.Revision}
	h.fresh = claim.Current.Revision == 0
	if h.Subnets != claim.Subnets { // a new key
		h.Subnets, h.Revision, h.at, h.fresh = claim.Subnets, 0, 0, true
		h.Attrs = Attrs{} // to be written, whatever the old one says
	}
	if h.Reservation && h.Attrs.Equal(local.Attrs) {
		k.written = local.Attrs
	} else if err := k.put(ctx, h, local.Attrs, claim.Current); err != nil {
		return err
	}
	k.log.Info("lease acquired", "subnets", h.Subnets.String(), "how", claim.Kind, "reasons", claim.Reasons)
	k.report(func(st *Status) { st.Notes = claim.Reasons })
	k.held, k.previous, k.gone, k.began = h, h.Subnets, false, true
	k.schedule()
	k.release(ctx, claim.Release)
	if !h.fresh {
		k.succeeded()
	}
	return nil
}

// verify looks once more after a record was created, and yields to one that was
// there first.
func (k *Keeper) verify(ctx context.Context, s Snapshot) error {
	err := k.held.beaten(k.self(), s)
	if err == nil {
		k.held.fresh = false
		k.succeeded()
		return nil
	}
	gone := k.held.Record
	k.held = nil
	if e := k.delete(ctx, gone); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// rewrite renews the held record, or brings its attributes up to date.
func (k *Keeper) rewrite(ctx context.Context) error {
	if err := k.put(ctx, k.held, k.currentLocal().Attrs, k.held.Record); err != nil {
		return err
	}
	k.schedule()
	k.succeeded()
	return nil
}

// put writes h with attributes a, and notes the outcome in h. If old is in the store and has other
// subnets, h takes its place.
func (k *Keeper) put(ctx context.Context, h *holding, a Attrs, old Record) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ttl := TTL
	if h.Reservation {
		ttl = 0
	}
	began := time.Now() // the store starts to count later than this
	var revision int64
	var err error
	if old.Revision != 0 && old.Subnets != h.Subnets {
		revision, err = k.store.Replace(ctx, old.Subnets, old.Revision, h.Subnets, a, ttl)
	} else {
		revision, err = k.store.Put(ctx, h.Subnets, a, ttl, h.at)
	}
	switch {
	case errors.Is(err, ErrConflict):
		k.doubt = true
		return fmt.Errorf("write %s at revision %d: %w", h.Subnets, h.at, err)
	case err != nil:
		// It may have been written all the same. Remember it in the record that we
		// hold, so that it is not taken for another's.
		k.doubt = true
		if k.held != nil && k.held.Subnets == h.Subnets {
			k.held.unsure = append(k.held.unsure, a)
		}
		return fmt.Errorf("write %s: %w", h.Subnets, err)
	}
	h.Attrs, h.Revision, h.unsure = a, revision, nil
	h.at, h.back = revision, false
	h.Expires = time.Time{}
	if !h.Reservation {
		h.Expires = began.Add(ttl)
	}
	k.written = a
	k.storeAnswered(time.Now())
	return nil
}

// release removes records of ours that no longer fit. Nothing depends on it.
func (k *Keeper) release(ctx context.Context, surplus []Record) {
	for _, r := range surplus {
		if err := k.delete(ctx, r); err != nil {
			k.log.Warn("surplus record stays until it expires", "subnets", r.Subnets.String(), "cause", err)
		}
	}
}

func (k *Keeper) delete(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := k.store.Delete(ctx, r.Subnets, r.Revision); err != nil {
		return fmt.Errorf("delete %s: %w", r.Subnets, err)
	}
	return nil
}

// Package leasetest has a lease.Store in memory. It behaves as etcd does where a
// lease can tell: one revision for all writes, compare-and-swap, records that end
// with their TTL, outages, and a store that is wiped or goes back to a backup. Its
// clock is package time, so that testing/synctest runs days in it.
package leasetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weft/lease"
)

// ErrOutage is what every call gets while the store is down.
var ErrOutage = errors.New("no endpoint answers")

// entry is one key under subnets.
type entry struct {
	value    []byte
	revision int64
	created  int64     // the revision that made it
	expires  time.Time // zero: never
}

// Store is a lease.Store in memory, safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	cluster  string
	revision int64
	config   []byte
	entries  map[string]entry
	mail     map[string]map[string]letter // by the identity that it is for, then by who sent it
	letters  int                          // messages so far
	down     bool
	forget   int           // so many writes are done and reported as failed
	latency  time.Duration // of the reply to a Snapshot
	heard    time.Time     // the last answer before an outage; zero before the first
	changed  chan struct{} // closed and replaced at every change
}

var _ lease.Store = (*Store)(nil)

// New returns a store that holds only config, which may be nil.
func New(cluster string, config []byte) *Store {
	return &Store{cluster: cluster, revision: 1, config: config, entries: map[string]entry{},
		changed: make(chan struct{})}
}

// touch wakes the watches. The caller holds mu.
func (s *Store) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// sweep drops what has expired, each at a revision of its own. The caller holds mu.
func (s *Store) sweep() {
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		if e := s.entries[key]; !e.expires.IsZero() && !time.Now().Before(e.expires) {
			delete(s.entries, key)
			s.revision++
			s.touch()
		}
	}
}

// Snapshot implements lease.Store.
func (s *Store) Snapshot(ctx context.Context) (lease.Snapshot, error) {
	s.mu.Lock()
	err, latency := s.answer(ctx), s.latency
	snap := s.snapshot()
	s.mu.Unlock()
	time.Sleep(latency)
	if err != nil {
		return lease.Snapshot{}, err
	}
	return snap, nil
}

func (s *Store) answer(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.down {
		return ErrOutage
	}
	s.heard = time.Now()
	s.sweep()
	return nil
}

// Heard implements lease.Store: a store that has answered once goes on doing so, unasked, unless it is down.
func (s *Store) Heard() lease.Heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down && !s.heard.IsZero() {
		s.heard = time.Now()
	}
	return lease.Heard{At: s.heard}
}

func (s *Store) snapshot() lease.Snapshot {
	out := lease.Snapshot{ClusterID: s.cluster, Revision: s.revision, Config: slices.Clone(s.config)}
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[key]
		subnets, err := lease.ParseKey(key)
		if err != nil {
			out.Bad = append(out.Bad, lease.Rejected{Key: key, Reason: lease.RejectKey, Detail: err.Error(),
				Revision: e.revision})
			continue
		}
		attrs, err := lease.DecodeAttrs(e.value)
		if err != nil {
			out.Bad = append(out.Bad, lease.Rejected{Key: key, Reason: lease.RejectValue, Detail: err.Error(),
				Revision: e.revision})
			continue
		}
		out.Records = append(out.Records, &lease.Record{
			Subnets: subnets, Attrs: attrs, Expires: e.expires, Reservation: e.expires.IsZero(), Revision: e.revision,
			Created: e.created,
		})
	}
	return out
}

// Put implements lease.Store.
func (s *Store) Put(ctx context.Context, n lease.Subnets, a lease.Attrs, ttl time.Duration,
	ifRevision int64) (int64, error) {
	value, err := lease.EncodeAttrs(a)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return 0, err
	}
	if got := s.entries[n.Key()].revision; got != ifRevision {
		return 0, fmt.Errorf("%s is at revision %d, not %d: %w", n.Key(), got, ifRevision, lease.ErrConflict)
	}
	s.put(n.Key(), value, ttl)
	if s.forget > 0 {
		s.forget--
		return 0, context.DeadlineExceeded
	}
	return s.revision, nil
}

// Replace implements lease.Store.
func (s *Store) Replace(ctx context.Context, old lease.Subnets, oldRevision int64, n lease.Subnets,
	a lease.Attrs, ttl time.Duration) (int64, error) {
	value, err := lease.EncodeAttrs(a)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return 0, err
	}
	if got := s.entries[old.Key()].revision; got != oldRevision || got == 0 {
		return 0, fmt.Errorf("%s is at revision %d, not %d: %w", old.Key(), got, oldRevision, lease.ErrConflict)
	}
	if _, there := s.entries[n.Key()]; there {
		return 0, fmt.Errorf("%s is there: %w", n.Key(), lease.ErrConflict)
	}
	delete(s.entries, old.Key())
	s.put(n.Key(), value, ttl)
	if s.forget > 0 {
		s.forget--
		return 0, context.DeadlineExceeded
	}
	return s.revision, nil
}

func (s *Store) put(key string, value []byte, ttl time.Duration) {
	s.revision++
	e := entry{value: value, revision: s.revision, created: s.revision}
	if was, there := s.entries[key]; there {
		e.created = was.created
	}
	if ttl > 0 {
		e.expires = time.Now().Add(ttl)
	}
	s.entries[key] = e
	s.touch()
}

// Delete implements lease.Store.
func (s *Store) Delete(ctx context.Context, n lease.Subnets, ifRevision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return err
	}
	if got := s.entries[n.Key()].revision; got != ifRevision || got == 0 {
		return fmt.Errorf("%s is at revision %d, not %d: %w", n.Key(), got, ifRevision, lease.ErrConflict)
	}
	s.remove(n.Key())
	return nil
}

func (s *Store) remove(key string) {
	delete(s.entries, key)
	s.revision++
	s.touch()
}

// Remaining implements lease.Store.
func (s *Store) Remaining(ctx context.Context, n lease.Subnets) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return 0, err
	}
	e := s.entries[n.Key()]
	if e.expires.IsZero() {
		return 0, nil
	}
	return time.Until(e.expires), nil
}

// CreateConfig implements lease.Store.
func (s *Store) CreateConfig(ctx context.Context, config []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return err
	}
	if s.config == nil {
		s.config = slices.Clone(config)
		s.revision++
		s.touch()
	}
	return nil
}

// Watch implements lease.Store.
func (s *Store) Watch(ctx context.Context, changed func(lease.Snapshot), lost func(error)) error {
	for {
		s.mu.Lock()
		err := s.answer(ctx)
		snap, wake, next := s.snapshot(), s.changed, s.nextExpiry()
		s.mu.Unlock()
		if err != nil {
			lost(err)
		} else {
			changed(snap)
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// nextExpiry is when the next record ends, at most five minutes ahead: then
// everything is listed again.
func (s *Store) nextExpiry() time.Time {
	next := time.Now().Add(5 * time.Minute)
	for _, e := range s.entries {
		if !s.down && !e.expires.IsZero() && e.expires.Before(next) {
			next = e.expires
		}
	}
	return next
}

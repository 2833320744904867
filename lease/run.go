package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Acquire blocks until we hold a subnet, and returns the first Set, which it also
// publishes. It waits while the store does not answer or has no configuration. It
// does not wait for people: the error is then a *RivalError, *ContestError, *IPv6OnlyError,
// *ConfigChangedError, or wraps ErrOutOfSubnets. Otherwise it is ctx's.
func (k *Keeper) Acquire(ctx context.Context) (Set, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	life, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	k.hearken(life, &wg)
	for {
		k.attend(ctx)
		err := k.advance(ctx)
		if err == nil && k.contest != nil && k.contest.lives != "" {
			err = k.contestError()
		}
		if err != nil && final(err) {
			return Set{}, err
		}
		if k.held != nil && !k.needsAcquire() && !k.held.fresh {
			return k.publish(), nil
		}
		timer := time.NewTimer(time.Until(k.wake()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return Set{}, context.Cause(ctx)
		case <-k.in.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// hearken listens to what others say to those of our identity, until ctx ends.
func (k *Keeper) hearken(ctx context.Context, wg *sync.WaitGroup) {
	k.spawn = wg.Go
	wg.Go(func() {
		if err := k.store.Listen(ctx, k.o.Node, k.in.told); ctx.Err() == nil {
			k.log.Warn("who asks in the store whether we live gets no answer", "cause", err)
		}
	})
}

// Run keeps the lease and publishes sets until ctx ends; then it returns nil. With
// a cached state it publishes at once. Without a lease it acquires one, and keeps
// trying whatever the reason that there is none; but its first subnet it does not take
// by a configuration that is not the store's. The error says why the store's watch ended.
func (k *Keeper) Run(ctx context.Context) error {
	k.turn.Lock()
	defer k.turn.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	in := k.in
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	k.hearken(ctx, &wg)
	wg.Go(func() {
		err := k.store.Watch(ctx, in.changed, in.lost)
		if ctx.Err() == nil {
			cancel(&watchError{err})
		}
	})
	if k.restored || k.confirmed {
		k.publish()
	}
	if !k.confirmed { // the watch's first word saves us a read
		k.awaited = true
		k.retry = time.Now().Add(callTimeout)
	}
	k.loop(ctx, in)
	if k.saveDue(true); k.confirmed {
		k.saveNow() // it may have been proven in this moment
	}
	var ended *watchError
	if errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	return nil
}

// watchError says that a watch ended which should not have.
type watchError struct{ err error }

func (e *watchError) Error() string { return fmt.Sprintf("watch the store: ended: %v", e.err) }
func (e *watchError) Unwrap() error { return e.err }

func (k *Keeper) loop(ctx context.Context, in *inbox) {
	for {
		s, lost := in.take()
		if k.awaited && (s != nil || lost != nil) {
			k.awaited, k.retry = false, time.Time{}
		}
		if lost != nil {
			k.storeSilent(lost)
		}
		if s != nil {
			k.hear(ctx, *s)
		}
		k.attend(ctx)
		_ = k.advance(ctx) // it has reported what was wrong
		k.mem = k.mem.Expire(time.Now())
		if s := k.stateNow(); s == Expired && k.status.State == Held {
			k.enter(s, errors.New("the lease has run out, and the store did not take a renewal"))
		}
		if (k.confirmed || k.restored) && (k.held == nil || !k.held.fresh) {
			k.publish()
		}
		k.saveDue(false)
		timer := time.NewTimer(time.Until(k.wake()))
		select {
		case <-ctx.Done():
		case <-in.wake:
		case <-k.changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// hear takes in a snapshot of the watch, and lets work that was put off go on.
func (k *Keeper) hear(ctx context.Context, s Snapshot) {
	s, err := k.freshen(ctx, s)
	if err != nil {
		k.doubt = true
		return
	}
	k.observe(s)
	if time.Until(k.retry) > backoffFirst {
		k.retry = time.Now().Add(backoff(1, k.o.Rand))
	}
}

// wake is when the loop has something to do though nothing happens.
func (k *Keeper) wake() time.Time {
	now := time.Now()
	at := now.Add(longestSleep)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	switch {
	case k.pending(now):
		at = now
		if later := k.notBefore(); later.After(now) {
			at = later
		}
	case k.held != nil:
		sooner(k.renew)
	}
	if k.held != nil && k.held.Expires.After(now) {
		sooner(k.held.Expires)
	}
	sooner(k.mem.NextEnd())
	sooner(k.saves.due)
	return at
}

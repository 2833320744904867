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
	end, err := k.live(ctx, Begin{})
	if err != nil || end == nil {
		return Set{}, err
	}
	return end.Set, end.Err
}

// Run keeps the lease and publishes sets until ctx ends, and then returns nil. With a cached state it
// publishes at once. Without a lease it tries to acquire one until it succeeds, for any reason of failure;
// but it takes its first subnet only by the store's configuration. The error is the one with which the
// store's watch ended.
func (k *Keeper) Run(ctx context.Context) error {
	_, err := k.live(ctx, Begin{Keeps: true})
	var ended *watchError
	if errors.As(err, &ended) {
		return ended
	}
	return nil
}

// watchError says that a watch ended which should not have.
type watchError struct{ err error }

func (e *watchError) Error() string { return fmt.Sprintf("watch the store: ended: %v", e.err) }
func (e *watchError) Unwrap() error { return e.err }

// live does what the core asks for, from begin to its end or that of ctx; the error is then ctx's cause.
func (k *Keeper) live(ctx context.Context, begin Begin) (*Acquired, error) {
	k.turn.Lock()
	defer k.turn.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	l := loop{k: k, ctx: ctx, cancel: cancel, timer: time.NewTimer(longestSleep)}
	defer l.beside.Wait()
	defer cancel(nil)
	defer l.timer.Stop()
	l.step(k.in.Take())
	for next := Event(begin); ; {
		if next != nil {
			l.step(next)
		}
		switch {
		case l.acquired != nil:
			return l.acquired, nil
		case l.stopped:
			return nil, context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			l.stopped, next = true, Stop{Last: k.in.Take()}
		case <-k.in.Wake:
			next = k.in.Take()
		case <-l.timer.C:
			next = Tick{}
		}
	}
}

// loop is one life of a keeper's core.
type loop struct {
	k        *Keeper
	ctx      context.Context
	cancel   context.CancelCauseFunc
	beside   sync.WaitGroup // what runs beside the loop, until ctx ends
	timer    *time.Timer    // the core's Wait
	acquired *Acquired
	stopped  bool // the core was told to stop
}

// step hands e to the core, and does what it asks for until nothing is left to be done.
func (l *loop) step(e Event) {
	for events := []Event{e}; len(events) > 0; {
		next := events[0]
		events[0], events = nil, events[1:] // a snapshot is large
		l.k.mu.Lock()
		effects := l.k.core.Step(time.Now(), next)
		l.k.mu.Unlock()
		for _, f := range effects {
			if r := l.perform(f); r != nil {
				if l.ctx.Err() != nil && !l.stopped { // which is why the store gave up, perhaps
					l.stopped = true
					events = append(events, Stop{Last: l.k.in.Take()})
				}
				events = append(events, r)
			}
		}
	}
}

// perform does what the core asks for; nil if there is nothing to tell it.
func (l *loop) perform(f Effect) Event {
	k := l.k
	switch f := f.(type) {
	case Listen:
		l.beside.Go(func() {
			told := func(m Message) {
				if k.core.concerns(m) { // else it would only take the place of one that does
					k.in.Post(News{Messages: []Message{m}})
				}
			}
			err := k.store.Listen(l.ctx, f.Node, told)
			if l.ctx.Err() == nil {
				k.log.Warn("who asks in the store whether we live gets no answer", "cause", err)
			}
		})
	case Watch:
		l.beside.Go(func() {
			changed := func(s Snapshot) { k.in.Post(News{Snapshot: &s, Watched: true}) }
			lost := func(err error) { k.in.Post(News{Lost: err, Watched: true}) }
			if err := k.store.Watch(l.ctx, changed, lost); l.ctx.Err() == nil {
				l.cancel(&watchError{err})
			}
		})
	case AskUnderlay:
		l.beside.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, answerWait)
			defer cancel()
			if k.o.Underlay.Answers(ctx, f.Attrs) {
				k.in.Post(News{Answered: f.Round})
			}
		})
	case Call:
		if k.reserve(l.ctx) == nil { // else the call fails, since ctx has ended
			defer func() { <-k.calls }()
		}
		ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
		defer cancel()
		r := f.Operation.Do(ctx, k.store)
		r.Number = f.Number
		return r
	case SaveCache:
		select {
		case k.calls <- struct{}{}:
			defer func() { <-k.calls }()
		default: // the file is what the other keeper knows, which is as much
			return Saved{}
		}
		written, err := k.o.Cache.Save(f.Cached)
		return Saved{written, err}
	case Publish:
		k.o.Publish(f.Set)
	case Log:
		k.log.Log(l.ctx, f.Level, f.Message, f.Args...)
	case Wait:
		l.timer.Reset(time.Until(f.Until))
	case Acquired:
		l.acquired = &f
	}
	return nil
}

package keeper

import (
	"context"
	"fmt"
	"time"

	"weft/lease"
	"weft/lease/internal/loop"
)

// Run keeps the lease and publishes sets until ctx ends, and then returns nil. With a cached state it
// publishes at once. Without a lease it tries to acquire one until it succeeds, for any reason of failure;
// but it takes its first subnet only by the store's configuration. The error is the one with which the
// store's watch ended. Run is called once.
func (k *Keeper) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ended error
	l := &loop.Loop[Event, News]{
		In:   k.in,
		News: func(n News) Event { return n },
		Stop: func(n News) Event { return Stop{Last: n} },
	}
	fail := func(err error) { ended = fmt.Errorf("watch the store: ended: %w", err); cancel(ended) }
	l.Step = func(e Event) {
		k.mu.Lock()
		effects := k.core.Step(time.Now(), e)
		k.mu.Unlock()
		for _, f := range effects {
			k.perform(l, f, fail)
		}
	}
	l.Run(ctx, Begin{})
	return ended
}

// perform does what the core asks for. watchEnded is told of a watch that ends before its context.
func (k *Keeper) perform(l *loop.Loop[Event, News], f Effect, watchEnded func(error)) {
	switch f := f.(type) {
	case Listen:
		l.Beside(func(ctx context.Context) {
			told := func(m lease.Message) {
				if k.core.concerns(m) { // else it would only take the place of one that does
					k.in.Post(News{Messages: []lease.Message{m}})
				}
			}
			if err := k.store.Listen(ctx, f.Node, told); ctx.Err() == nil {
				k.o.Logger.Warn("who asks in the store whether we live gets no answer", "cause", err)
			}
		})
	case Watch:
		l.Beside(func(ctx context.Context) {
			changed := func(s lease.Snapshot) { k.in.Post(News{Snapshot: &s, Watched: true}) }
			lost := func(err error) { k.in.Post(News{Lost: err, Watched: true}) }
			if err := k.store.Watch(ctx, changed, lost); ctx.Err() == nil {
				watchEnded(err)
			}
		})
	case AskUnderlay:
		l.Beside(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, answerWait)
			defer cancel()
			if k.o.Underlay.Answers(ctx, f.Attrs) {
				k.in.Post(News{Answered: f.Round})
			}
		})
	case Call:
		l.Ask(func(ctx context.Context) Event {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			r := f.Operation.Do(ctx, k.store)
			r.Number = f.Number
			return r
		})
	case SaveCache:
		l.Ask(func(context.Context) Event { return f.Do(k.o.Cache) })
	case Publish:
		k.o.Publish(f.Set)
	case Log:
		k.o.Logger.Log(context.Background(), f.Level, f.Message, f.Args...)
	case Wait:
		l.Wake(f.Until)
	}
}

// Package loop hands a core, which has no goroutine and no clock, one event after another.
package loop

import (
	"context"
	"sync"
	"time"

	"weft/lease/internal/inbox"
)

// Loop runs a core that takes events of type E. In collects what comes in from outside, as news of type N.
// Only the goroutine that called Run may use its methods.
type Loop[E any, N any] struct {
	In *inbox.Inbox[N]
	// Step hands the core an event, and carries out the effects.
	Step func(E)
	// News and Stop make events of news. Stop is the last event but for the answers that are still due.
	News, Stop func(N) E

	ctx     context.Context
	beside  sync.WaitGroup
	timer   *time.Timer
	answers chan E
	due     int // answers that have not come
}

// longest bounds the timer until the first Wake.
const longest = 5 * time.Minute

// Run hands over what has come in, then begin, and then whatever comes, until ctx has ended and every answer
// has come. It returns when nothing runs beside the loop any more.
func (l *Loop[E, N]) Run(ctx context.Context, begin E) {
	ctx, cancel := context.WithCancel(ctx)
	l.ctx, l.timer, l.answers = ctx, time.NewTimer(longest), make(chan E)
	defer l.beside.Wait()
	defer cancel()
	defer l.timer.Stop()
	l.Step(l.News(l.In.Take()))
	l.Step(begin)
	for done := ctx.Done(); done != nil || l.due > 0; {
		var answer E
		answered := false
		select {
		case <-done:
		case <-l.In.Wake:
		case <-l.timer.C: // news that woke nobody count too
		case answer = <-l.answers:
			answered = true
			l.due--
		}
		if done != nil && ctx.Err() != nil { // which may be why the answer is an error: the core learns it first
			done = nil
			l.Step(l.Stop(l.In.Take()))
		} else if !answered {
			l.Step(l.News(l.In.Take()))
		}
		if answered {
			l.Step(answer)
		}
	}
}

// Beside runs f in a goroutine of its own. Its context ends with that of Run.
func (l *Loop[E, N]) Beside(f func(ctx context.Context)) { l.beside.Go(func() { f(l.ctx) }) }

// Ask runs f likewise, and hands the core what it returns.
func (l *Loop[E, N]) Ask(f func(ctx context.Context) E) {
	l.due++
	l.Beside(func(ctx context.Context) { l.answers <- f(ctx) })
}

// Wake has the core told at a time that it has come. It replaces the Wake before it.
func (l *Loop[E, N]) Wake(at time.Time) { l.timer.Reset(time.Until(at)) }

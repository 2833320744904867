package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	"weft/lease"
)

// Run publishes sets and keeps our annotations until ctx ends; then it returns nil. With a
// cached state it publishes at once. It waits for whatever is missing: the API server, our Node,
// its podCIDR, a right to write; Status says which.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := loop{m: m, ctx: ctx, answers: make(chan event, 3), timer: time.NewTimer(longestSleep)}
	defer l.beside.Wait()
	defer cancel()
	defer l.timer.Stop()
	l.step(m.in.Take())
	l.step(begin{})
	for done := ctx.Done(); !l.stopped; {
		var answer event
		select {
		case <-done:
		case <-m.in.Wake:
		case <-l.timer.C: // what was heard meanwhile has woken nobody
		case answer = <-l.answers:
		}
		switch {
		case ctx.Err() != nil && done != nil: // which may be why the answer is none
			done = nil
			l.step(stop{m.in.Take()})
			if answer != nil {
				l.step(answer)
			}
		case answer != nil:
			l.step(answer)
		default:
			l.step(m.in.Take())
		}
	}
	return nil
}

// loop is the life of a manager's core.
type loop struct {
	m       *Manager
	ctx     context.Context
	beside  sync.WaitGroup // what runs beside the loop
	timer   *time.Timer    // the core's Wait
	answers chan event     // to what was asked beside the loop; it has room for as much as is asked at a time
	watch   *nodeWatch
	herald  *herald
	stopped bool
}

// step hands e to the life, and does what it asks for.
func (l *loop) step(e event) {
	l.m.mu.Lock()
	effects := l.m.life.step(time.Now(), e)
	l.m.mu.Unlock()
	for _, f := range effects {
		l.perform(f)
	}
}

// perform does what the life asks for.
func (l *loop) perform(f Effect) {
	m := l.m
	switch f := f.(type) {
	case FindNode:
		l.ask(func() event {
			name, err := m.client.nodeName(l.ctx)
			return found{name, err}
		})
	case WatchNodes:
		l.watchNodes(f)
	case PatchNode:
		l.ask(func() event { return l.patch(f) })
	case ProbeServer:
		l.ask(func() event { return probed{l.watch.signOfLife(l.ctx, m.life.core.pace.answer)} })
	case Tell:
		l.herald.add(f.notice)
	case lease.AskUnderlay:
		l.beside.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, namesakeWait)
			defer cancel()
			m.in.Post(news{answer: &answer{f.Round, m.o.Underlay.Answers(ctx, f.Attrs)}})
		})
	case lease.Publish:
		m.o.Publish(f.Set)
	case lease.SaveCache:
		l.ask(func() event { // a disk may be slow, and a write to our Node does not wait for it
			written, err := m.o.Cache.Save(f.Cached)
			return lease.Saved{Written: written, Err: err}
		})
	case lease.Log:
		m.log.Log(l.ctx, f.Level, f.Message, f.Args...)
	case lease.Wait:
		l.timer.Reset(time.Until(f.Until))
	case Stopped:
		l.stopped = true
	}
}

// ask runs f beside the loop, and has the core told what it returns.
func (l *loop) ask(f func() event) { l.beside.Go(func() { l.answers <- f() }) }

// watchNodes begins the watch of Nodes and the writing of Events, until ctx ends.
func (l *loop) watchNodes(f WatchNodes) {
	m := l.m
	t := m.life.table
	l.watch = &nodeWatch{client: m.client, nodes: t, silent: func(err error) { m.in.Post(news{watch: &watchState{err}}) }}
	if f.alone {
		l.watch.only = f.name
	}
	l.herald = newHerald(m.client, t, m.log)
	l.beside.Go(func() { l.watch.run(l.ctx) })
	l.beside.Go(func() { l.herald.run(l.ctx) })
}

var errBusy = errors.New("another write to our Node is under way")

// turn waits until nothing else writes. Who has the turn takes one from writes.
func (m *Manager) turn(ctx context.Context) error {
	select {
	case m.writes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// patch writes to our Node. The last write goes on though ctx has ended.
func (l *loop) patch(f PatchNode) patched {
	ctx := l.ctx
	if f.last {
		select {
		case l.m.writes <- struct{}{}:
			defer func() { <-l.m.writes }()
		default: // the write that is under way says what there is to say
			return patched{err: errBusy}
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
		defer cancel()
	} else if err := l.m.turn(ctx); err != nil {
		return patched{err: err}
	} else {
		defer func() { <-l.m.writes }()
	}
	node, err := l.m.client.patchStatus(ctx, f.name, f.patch.body())
	if err != nil {
		return patched{err: err}
	}
	return patched{node: l.m.life.table.answered(node)}
}

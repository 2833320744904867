package kube

import (
	"context"
	"time"

	"weft/lease/internal/loop"
	"weft/lease/keeper"
)

// Run publishes sets and keeps our annotations until ctx ends; then it returns nil. With a
// cached state it publishes at once. It waits for whatever is missing: the API server, our Node,
// its podCIDR, a right to write; Status says which.
func (m *Manager) Run(ctx context.Context) error {
	r := run{m: m}
	r.loop = &loop.Loop[keeper.Event, news]{
		In:   m.in,
		News: func(n news) keeper.Event { return n },
		Stop: func(n news) keeper.Event { return stop{n} },
		Step: func(e keeper.Event) {
			m.mu.Lock()
			effects := m.life.Step(time.Now(), e)
			m.mu.Unlock()
			for _, f := range effects {
				r.perform(f)
			}
		},
	}
	r.loop.Run(ctx, keeper.Begin{})
	return nil
}

// run is a manager's Life that runs.
type run struct {
	m           *Manager
	loop        *loop.Loop[keeper.Event, news]
	watch       *nodeWatch
	eventWriter *eventWriter
}

// perform does what the life asks for.
func (r *run) perform(f Effect) {
	m := r.m
	switch f := f.(type) {
	case FindNode:
		r.loop.Ask(func(ctx context.Context) keeper.Event {
			name, err := m.client.nodeName(ctx)
			return Found{name, err}
		})
	case WatchNodes:
		r.watchNodes(f)
	case PatchNode:
		r.loop.Ask(func(ctx context.Context) keeper.Event { return m.patch(ctx, f) })
	case ProbeServer:
		r.loop.Ask(func(ctx context.Context) keeper.Event {
			return Probed{r.watch.signOfLife(ctx, m.life.pace.answer)}
		})
	case Tell:
		r.eventWriter.add(f.notice)
	case keeper.AskUnderlay:
		r.loop.Beside(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, namesakeWait)
			defer cancel()
			m.in.Post(news{answer: &Answered{f.Round, m.o.Underlay.Answers(ctx, f.Attrs)}})
		})
	case keeper.Publish:
		m.o.Publish(f.Set)
	case keeper.SaveCache: // beside all else: a disk may be slow, and a write to our Node does not wait for it
		r.loop.Ask(func(context.Context) keeper.Event { return f.Do(m.o.Cache) })
	case keeper.Log:
		m.o.Logger.Log(context.Background(), f.Level, f.Message, f.Args...)
	case keeper.Wait:
		r.loop.Wake(f.Until)
	}
}

// watchNodes begins the watch of Nodes and the writing of Events.
func (r *run) watchNodes(f WatchNodes) {
	m := r.m
	t := m.life.table
	silent := func(err error) { m.in.Post(news{watch: &Watches{err}}) }
	r.watch = &nodeWatch{client: m.client, nodes: t, silent: silent}
	if f.alone {
		r.watch.only = f.name
	}
	r.eventWriter = newEventWriter(m.client, t, m.o.Logger)
	r.loop.Beside(r.watch.run)
	r.loop.Beside(r.eventWriter.run)
}

// patch writes to our Node. The last write goes on though ctx has ended.
func (m *Manager) patch(ctx context.Context, f PatchNode) keeper.Event {
	if f.last {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
		defer cancel()
	}
	node, err := m.client.patchStatus(ctx, f.name, f.patch.body())
	if err != nil {
		return Patched{Err: err}
	}
	return Patched{Node: node}
}

package kube

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"weft/lease"
)

// longestSleep bounds a timer, because timers stand still while a machine sleeps.
const longestSleep = 5 * time.Minute

// Run publishes sets and keeps our annotations until ctx ends; then it returns nil. With a
// cached state it publishes at once. It waits for whatever is missing: the API server, our Node,
// its podCIDR, a right to write; Status says which.
func (m *Manager) Run(ctx context.Context) error {
	if m.state.source == sourceCache {
		m.publish()
	}
	name, ok := m.findNode(ctx)
	if !ok {
		return nil
	}
	nodes := newNodes(m.client.keys, m.o.Config, name, m.heard, func() { poke(m.wake) })
	m.nodes.Store(nodes)
	f := &nodeWatch{client: m.client, nodes: nodes, silent: m.silent, quiet: m.quiet, asked: m.asked}
	if m.o.Backend.Alone {
		f.only = name
	}
	herald := newHerald(m.client, nodes, m.log)
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		m.farewell(nodes)
	}()
	wg.Go(func() { herald.run(ctx) })
	wg.Go(func() { f.run(ctx) })
	wg.Go(func() { f.probe(ctx, m.pace.probe, m.pace.answer) })
	wg.Go(func() { m.writer(ctx, nodes, herald) })
	m.state.ask = m.asker(ctx, wg.Go)
	m.loop(ctx, nodes)
	m.save(true)
	return nil
}

// findNode returns the name of our Node, and false if ctx ended first.
func (m *Manager) findNode(ctx context.Context) (string, bool) {
	for failures := 0; ; failures++ {
		name, err := m.client.nodeName(ctx)
		if err == nil {
			if failures > 0 {
				m.asked(nil)
			}
			return name, true
		}
		if ctx.Err() != nil {
			return "", false
		}
		m.asked(err)
		if !sleep(ctx, m.backoff(failures)) {
			return "", false
		}
	}
}

// backoff is the wait after so many failures, drawn from the upper half so that nodes do not
// march in step.
func (m *Manager) backoff(failures int) time.Duration {
	d := m.pace.retryMost
	if failures < 16 {
		d = min(m.pace.retryFirst<<failures, m.pace.retryMost)
	}
	return d/2 + rand.N(d/2+1)
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// loop turns changes into sets.
func (m *Manager) loop(ctx context.Context, nodes *nodes) {
	for {
		now := time.Now()
		m.state.peers.Expire(now)
		if due := nodes.due(); !due.IsZero() && !now.Before(due) {
			m.observe(nodes.take(m.state.peers.Accepted(), m.state.once))
		}
		if m.state.source == sourceServer { // a write has met something, or we say something else of ourselves
			m.judge(nodes)
		}
		if m.state.source != sourceNone {
			m.publish()
		}
		m.save(false)
		timer := time.NewTimer(time.Until(m.next(nodes)))
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// next is when the loop has something to do though nothing happens.
func (m *Manager) next(nodes *nodes) time.Time {
	at := time.Now().Add(longestSleep)
	for _, t := range []time.Time{nodes.due(), m.state.peers.Memory().NextEnd(), m.state.saver.Due(), m.state.namesake.due()} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	return at
}

// save writes the cache if its time has come, or if this is the last chance.
func (m *Manager) save(last bool) {
	st, now := &m.state, time.Now()
	if st.source != sourceServer {
		return
	}
	if !st.saver.Want(now, len(st.peers.Memory().Peers), st.held.Subnets) && !last && now.Before(st.saver.Due()) {
		return
	}
	if m.o.Cache == nil || !m.proven.Load() {
		st.saver.Skip()
		return
	}
	st.saver.Begin(st.held.Subnets)
	err := m.o.Cache.Save(lease.Cached{Own: st.held, Memory: st.peers.Memory()})
	news := st.saver.Done(now, true, err)
	m.mu.Lock()
	changed := (m.cacheErr == nil) != (err == nil)
	m.cacheErr = err
	m.mu.Unlock()
	if changed {
		poke(m.write)
	}
	if news {
		m.log.Warn("the state was not cached; it is tried again", "cause", err)
	}
}

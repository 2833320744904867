package kube

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"golang.org/x/time/rate"

	"weft/lease"
	"weft/lease/kube/internal/objects"
)

// Writes are few: when we start, when something about us changes, and when somebody has changed
// what is ours. Somebody who does so again and again is another flanneld, and must not be met
// with a storm: a dozen at once, then one in ten seconds.
const (
	writeEvery = 10 * time.Second
	writeBurst = 12
	// sayAgain is how long a condition says what it says, as long as it is true all the same.
	sayAgain = time.Minute
)

// writer keeps our Node's annotations and its condition as they should be, until ctx ends.
func (m *Manager) writer(ctx context.Context, nodes *nodes, herald *herald) {
	limit := rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	var retry time.Time // no write before this
	failures := 0
	w := writing{m: m, nodes: nodes, herald: herald}
	for {
		now := time.Now()
		p, next, err := w.pending(now)
		at := now.Add(longestSleep)
		switch {
		case err != nil:
			m.wrote(err, true)
		case p.empty():
			m.wrote(nil, false)
		case now.Before(retry):
			at = retry
		default:
			node, err := m.client.patchStatus(ctx, nodes.own, p.body())
			if ctx.Err() != nil {
				m.interrupted(p)
				return
			}
			if err != nil {
				retry = time.Now().Add(m.backoff(failures))
				failures++
				m.wrote(err, apierrors.ReasonForError(err) != "")
				continue
			}
			failures = 0
			if wait := limit.Reserve().Delay(); wait > 0 {
				retry = time.Now().Add(wait)
				m.log.Warn("what we write to our Node is changed again and again: does another flanneld run here, with the same --kube-annotation-prefix?", "node", nodes.own, "retry", wait.Round(time.Second))
			}
			m.heard()
			w.done(p)
			nodes.answered(node)
			m.wrote(nil, false)
			continue
		}
		if !next.IsZero() && next.Before(at) {
			at = next
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-ctx.Done():
		case <-m.write:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// writing is what the writer remembers.
type writing struct {
	m           *Manager
	nodes       *nodes
	herald      *herald
	diary       diary
	blind       string        // the reason of the last condition, if our Node could not be read then
	conditioned time.Time     // when we wrote the condition last; zero for not since the start
	late        time.Duration // by how much the next heartbeat is put off, so that nodes do not march in step
}

// pending returns what our Node lacks at now, and when that changes by itself; zero for never. It
// tells the herald what is news.
func (w *writing) pending(now time.Time) (p patch, next time.Time, err error) {
	w.m.mu.Lock()
	known := w.m.told
	ripe, news, doubt, next := w.diary.update(w.m.concerns(), now, w.m.pace.broken, w.m.pace.concern)
	w.m.mu.Unlock()
	for _, n := range news {
		w.herald.tell(n, len(w.diary.ripe) == 0, now)
	}
	ours := w.nodes.ourNode()
	switch {
	case ours == nil && len(ripe) > 0 && known && w.m.client.cfg.SetNodeNetworkUnavailable && !w.nodes.isSynced():
		// We may not read, but perhaps write.
		if c := condition(ripe); c.Reason != w.blind && !now.Before(w.conditioned.Add(sayAgain)) {
			p.condition(&objects.Node{}, c, now)
		}
		return p, next, nil
	case ours == nil:
		return p, next, nil
	}
	w.m.mu.Lock()
	waits := w.m.waits || !w.m.judged
	w.m.mu.Unlock()
	if waits {
		return p, next, nil
	}
	local, own := w.m.announced()
	if own != (lease.Subnets{}) {
		want, err := w.nodes.keys.encode(local.Attrs, w.m.o.Backend)
		if err != nil {
			return p, time.Time{}, err
		}
		p.annotations(w.nodes.keys, ours.Annotations, want)
	}
	if !w.m.client.cfg.SetNodeNetworkUnavailable || !known {
		return p, next, nil
	}
	c, have := condition(ripe), networkCondition(ours)
	if c.Status == conditionFalse && doubt {
		return p, next, nil // nobody says meanwhile that all is well
	}
	at := now
	switch {
	case differs(have, c, !w.conditioned.IsZero()):
		if have != nil && have.Status == c.Status {
			at = w.conditioned.Add(sayAgain) // a new reason can wait: reasons may come in quick succession
		}
	case isOurReason(have.Reason):
		at = have.LastHeartbeatTime.Add(max(w.m.pace.beat, time.Duration(w.nodes.count())*beatPerNode) + w.late)
		p.beat = true
	default:
		return p, next, nil
	}
	if now.Before(at) {
		return p, soonest(next, at), nil
	}
	p.condition(ours, c, now)
	return p, next, nil
}

// soonest is the earlier of two times, of which the zero one is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// done notes and logs what was written.
func (w *writing) done(p patch) {
	if p.Metadata != nil {
		w.m.log.Info("annotations written", "node", w.nodes.own, "keys", slices.Sorted(maps.Keys(p.Metadata.Annotations)))
	}
	if p.Status == nil {
		return
	}
	w.conditioned, w.blind = time.Now(), p.Status.Conditions[0].Reason
	w.late = rand.N(w.m.pace.beat/5 + 1)
	if p.beat {
		return
	}
	for _, c := range p.Status.Conditions {
		w.m.log.Info("condition written", "node", w.nodes.own, "type", string(c.Type), "status", string(c.Status), "reason", c.Reason, "message", c.Message)
	}
}

// wrote notes what the last write met; refused says that the API server answered.
func (m *Manager) wrote(err error, refused bool) {
	m.mu.Lock()
	before := m.writeErr
	m.writeErr, m.refused = err, refused
	m.mu.Unlock()
	if text(before) == text(err) {
		return
	}
	if err != nil {
		m.log.Warn("our Node is not written; it is tried again", "cause", err)
	}
	poke(m.wake)
	poke(m.write)
}

// interrupted notes a write whose answer the stop did not wait for: the API server may have taken it.
func (m *Manager) interrupted(p patch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutOff = p.Status != nil && p.Status.Conditions[0].Status == conditionFalse
}

// farewellTimeout bounds the last write, for which a stop waits.
const farewellTimeout = 2 * time.Second

// farewell takes back that pods have a network, where they have none without us: where weft itself carries
// the packets, which is where it says what it can receive. What the kernel carries goes on. An API server that did not answer lately is
// not waited for, and a daemon that is killed says nothing.
func (m *Manager) farewell(nodes *nodes) {
	m.mu.Lock()
	carries := m.told && m.broken == "" && len(m.local.Attrs.Weft.Recv) > 0
	silent := m.waits || !m.judged || m.watchErr != nil || m.probeErr != nil
	said := m.cutOff
	m.mu.Unlock()
	ours := nodes.ourNode()
	if !m.client.cfg.SetNodeNetworkUnavailable || !carries || silent || ours == nil {
		return
	}
	if have := networkCondition(ours); have != nil && have.Status == conditionFalse && isOurReason(have.Reason) {
		said = true
	}
	if !said {
		return
	}
	var p patch
	p.condition(ours, objects.NodeCondition{Type: networkUnavailable, Status: conditionUnknown, Reason: reasonStopped, Message: messageStop}, time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	if _, err := m.client.patchStatus(ctx, nodes.own, p.body()); err != nil {
		m.log.Debug("the condition was not written at the end", "cause", err)
	}
}

package kube

import (
	"context"
	"maps"
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
func (m *Manager) writer(ctx context.Context, nodes *nodes) {
	limit := rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	var retry time.Time // no write before this
	failures := 0
	w := writing{m: m, nodes: nodes}
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
	conditioned time.Time // when we wrote the condition last; zero for not since the start
}

// pending returns what our Node lacks at now, and when that changes by itself; zero for never.
func (w *writing) pending(now time.Time) (p patch, next time.Time, err error) {
	ours := w.nodes.ourNode()
	if ours == nil {
		return p, time.Time{}, nil
	}
	local, own := w.m.announced()
	if own != (lease.Subnets{}) {
		want, err := w.nodes.keys.encode(local.Attrs)
		if err != nil {
			return p, time.Time{}, err
		}
		p.annotations(w.nodes.keys, ours.Annotations, want)
	}
	if !w.m.client.cfg.SetNodeNetworkUnavailable {
		return p, time.Time{}, nil
	}
	var c *objects.NodeCondition
	w.m.mu.Lock()
	c, next = w.m.path.condition(now, w.m.pace.broken)
	w.m.mu.Unlock()
	if c == nil || !differs(ours, c, !w.conditioned.IsZero()) {
		return p, next, nil
	}
	if again := w.conditioned.Add(sayAgain); status(ours) == c.Status && now.Before(again) {
		return p, again, nil // a new reason can wait: reasons may come in quick succession
	}
	p.condition(ours, *c, now)
	return p, next, nil
}

// done notes and logs what was written.
func (w *writing) done(p patch) {
	if p.Metadata != nil {
		w.m.log.Info("annotations written", "node", w.nodes.own, "keys", slices.Sorted(maps.Keys(p.Metadata.Annotations)))
	}
	if p.Status == nil {
		return
	}
	w.conditioned = time.Now()
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
}

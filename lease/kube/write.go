package kube

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/lease"
)

// Writes are few: when we start, when something about us changes, and when somebody has changed
// what is ours. Somebody who does so again and again is another flanneld, and must not be met
// with a storm: a dozen at once, then one in ten seconds.
const (
	writeEvery = 10 * time.Second
	writeBurst = 12
)

// writer is what a Life knows of its writes.
type writer struct {
	own      lease.Subnets // what our annotations stand for; zero while they must not be written
	mayWrite bool          // our Node is known not to be another machine's
	err      error         // what the last write met
	refused  bool          // the API server has answered with err
	right    bool          // our annotations have been as they should be, since the start

	limit    *rate.Limiter // which is handed the time
	retry    time.Time     // nothing is asked before this
	failures int           // in a row
	sent     patch         // by the request that is under way
}

// write keeps our Node's annotations and its condition as they should be. It returns when there is more to do
// by itself, zero for never, and whether something is known now of the last write that was not before.
func (c *Life) write() (next time.Time, news bool) {
	w := &c.writer
	p, next, err := c.pending()
	switch {
	case c.under != none:
	case err != nil:
		news = c.wrote(err, true)
	case p.empty():
		news = c.wrote(nil, false)
	case c.Now.Before(w.retry):
		next = soonest(next, w.retry)
	default:
		c.under, w.sent = patching, p
		if p.Metadata != nil {
			c.namesake.sent = c.announced().Attrs
		}
		c.Do(PatchNode{name: c.name, patch: p})
	}
	return next, news
}

// patched goes on with the answer to a write.
func (c *Life) patched(e Patched) {
	w := &c.writer
	was, sent := c.under, w.sent
	if was != patching && was != parting {
		return
	}
	c.under, w.sent = none, patch{}
	if e.Err == nil {
		c.table.answered(e.Node)
	}
	switch {
	case was == parting && e.Err != nil:
		c.Log(slog.LevelDebug, "the condition was not written at the end", "cause", e.Err)
	case was == parting:
	case e.Err != nil && c.phase == stopping: // the API server may have taken it
		c.reporter.cutOff = sent.claims()
	case e.Err != nil:
		c.retryLater()
		c.wrote(e.Err, apierrors.ReasonForError(e.Err) != "")
	default:
		w.failures = 0
		if wait := w.limit.ReserveN(c.Now, 1).DelayFrom(c.Now); wait > 0 {
			w.retry = c.Now.Add(wait)
			c.Log(slog.LevelWarn, "what we write to our Node is changed again and again: does another flanneld run "+
				"here, with the same --kube-annotation-prefix?",
				"event", lease.EventPutBack, "node", c.name, "retry", wait.Round(time.Second))
		}
		c.server.heard = c.Now
		c.done(sent)
		c.ours = c.table.ourNode()
		c.wrote(nil, false)
	}
}

// pending returns what our Node lacks, and when that changes by itself; zero for never. It asks for an Event
// about what is news.
func (c *Life) pending() (p patch, next time.Time, err error) {
	w := &c.writer
	var refused error
	if w.refused {
		refused = w.err
	}
	tell, next := c.reporter.update(c.lease(), refused, c.Now)
	for _, n := range tell {
		c.Do(Tell{n})
	}
	switch {
	case c.ours == nil && !c.view.read:
		c.reporter.unread(&p, c.Now)
		return p, next, nil
	case c.ours == nil || !w.mayWrite:
		return p, next, nil
	}
	if w.own != (lease.Subnets{}) {
		want, err := c.keys.encode(c.announced().Attrs, c.o.Backend)
		if err != nil {
			return p, time.Time{}, err
		}
		p.annotations(c.keys, c.ours.Annotations, want)
	}
	return p, soonest(next, c.reporter.condition(&p, c.ours, len(c.view.nodes), c.Now)), nil
}

// soonest is the earlier of two times, of which the zero one is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// done notes and logs what was written.
func (c *Life) done(p patch) {
	if p.Metadata != nil {
		c.Log(slog.LevelInfo, "annotations written",
			"event", lease.EventKubernetesStatus, "node", c.name,
			"keys", slices.Sorted(maps.Keys(p.Metadata.Annotations)))
	}
	if p.Status == nil {
		return
	}
	c.reporter.wrote(p.Status.Conditions[0], c.Draw(c.reporter.beat/5+1), c.Now)
	if p.beat {
		return
	}
	for _, says := range p.Status.Conditions {
		c.Log(slog.LevelInfo, "condition written",
			"event", lease.EventKubernetesStatus, "node", c.name, "type", string(says.Type),
			"status", string(says.Status), "reason", says.Reason, "message", says.Message)
	}
}

// wrote notes what the last write met, and reports whether that is news; refused says that the API
// server answered.
func (c *Life) wrote(err error, refused bool) (news bool) {
	before := c.writer.err
	c.writer.err, c.writer.refused = err, refused
	if text(before) == text(err) {
		return false
	}
	if err != nil {
		c.Log(slog.LevelWarn, "our Node is not written; it is tried again", "cause", err)
	}
	return true
}

// farewellTimeout bounds the last write, for which a stop waits.
const farewellTimeout = 2 * time.Second

// farewell is the last write, if there is one: it takes back that pods have a network, where they have none
// without us, which is where weft itself carries the packets, and says so by what it can receive. The
// kernel's data path goes on. An API server that did not answer lately is not waited for, and a daemon that
// is killed says nothing.
func (c *Life) farewell() (p patch, ok bool) {
	r := &c.reporter
	carries := r.path != nil && r.path.Broken == "" && len(c.Local.Attrs.Weft.Recv) > 0
	if r.conditions && carries && c.writer.mayWrite && c.server.err() == nil && c.ours != nil {
		r.farewell(&p, c.ours, c.Now)
	}
	return p, !p.empty()
}

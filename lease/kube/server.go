package kube

import (
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/lease"
)

// serverFacts is what is known of the API server itself.
type serverFacts struct {
	heard    time.Time // when it last said anything; zero for never
	watchErr error     // why the watch is silent; nil if it is not
	probeErr error     // why it did not answer a question; nil if it did
	silent   time.Time // since when there is one of the two; zero while there is none
	began    time.Time // when the watch began
	probing  bool      // a sign of life is asked for
	probed   time.Time // when one was asked for last
}

// err is why the API server is silent; nil if it is not.
func (s *serverFacts) err() error {
	if s.watchErr != nil {
		return s.watchErr
	}
	return s.probeErr
}

// asked notes what a question to the API server met.
func (c *Life) asked(err error) {
	if err == nil {
		c.server.heard = c.Now
	}
	c.noteServer(&c.server.probeErr, err)
}

// noteServer sets one of the two errors, and logs the first error, one of another kind, and the end
// of the last: the texts of those between differ, and say no more.
func (c *Life) noteServer(which *error, err error) {
	s := &c.server
	another := err != nil && apierrors.ReasonForError(*which) != apierrors.ReasonForError(err)
	*which = err
	was, silent := s.silent, s.err() != nil
	switch {
	case !silent:
		s.silent = time.Time{}
	case was.IsZero():
		s.silent = c.Now
	}
	switch {
	case silent && (was.IsZero() || another):
		c.Log(slog.LevelWarn, "the API server does not answer; packets go on, and so do we",
			"event", lease.EventStoreLost, "cause", err)
	case !silent && !was.IsZero():
		c.Log(slog.LevelInfo, "the API server answers again",
			"event", lease.EventStoreBack, "after", c.Now.Sub(was).Round(time.Millisecond))
	}
}

const (
	// probeAfter is how long the API server may be silent before it is asked for a sign of life.
	// With twice that between the last word and the first failure, an API server that restarts within
	// the grace of readiness costs none. In a cluster of some fifty nodes there is hardly ever such a silence.
	probeAfter   = 6 * time.Second
	probeTimeout = 5 * time.Second
)

// probe asks the API server for a sign of life if it has been silent: a connection may be there with
// nobody at its other end.
func (c *Life) probe() {
	s := &c.server
	if s.probing || c.Now.Before(c.probeDue()) {
		return
	}
	if c.Now.Sub(s.heard) < c.pace.probe { // it has spoken since the last question
		c.asked(nil)
		return
	}
	s.probing, s.probed = true, c.Now
	c.Do(ProbeServer{})
}

// probeDue is when probe has something to do; the zero time while it waits for an answer.
func (c *Life) probeDue() time.Time {
	s := &c.server
	again := c.pace.probe / 3 // between two questions
	switch {
	case s.probing:
		return time.Time{}
	case s.probeErr != nil:
		return s.probed.Add(again)
	}
	at := s.heard.Add(c.pace.probe)
	if first := s.began.Add(again); at.Before(first) {
		at = first
	}
	return at
}

// probed notes what became of asking for a sign of life. A refusal is one.
func (c *Life) probed(err error) {
	c.server.probing = false
	if c.phase == keeping {
		c.asked(err)
	}
}

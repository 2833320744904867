package kube

import (
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/lease"
)

// Status returns the present state; the caller owns it.
func (m *Manager) Status() lease.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Notes, s.Rejected = slices.Clone(s.Notes), slices.Clone(s.Rejected)
	if at := m.heardAt.Load(); at != 0 {
		s.StoreSeen = time.Unix(0, at)
	}
	if s.StoreErr = m.watchErr; s.StoreErr == nil {
		s.StoreErr = m.probeErr
	}
	s.CacheErr = m.cacheErr
	s.StoreRefuses, s.StoreSince = Refuses(s.StoreErr), m.silentFrom
	if s.Err == nil {
		s.Err = m.writeErr
	}
	if n := m.nodes.Load(); n != nil {
		s.Revision = n.at()
	}
	return s
}

// heard notes a word of the API server.
func (m *Manager) heard() { m.heardAt.Store(time.Now().UnixNano()) }

// quiet is for how long there was none.
func (m *Manager) quiet() time.Duration { return time.Since(time.Unix(0, m.heardAt.Load())) }

// silent notes why the watch is not served, or that it is.
func (m *Manager) silent(err error) { m.store(&m.watchErr, err) }

// asked notes what a question to the API server met.
func (m *Manager) asked(err error) {
	if err == nil {
		m.heard()
	}
	m.store(&m.probeErr, err)
}

// store sets one of the two, and logs the first error, one of another kind, and the end of the
// last: the texts of those between differ, and say no more.
func (m *Manager) store(which *error, err error) {
	m.mu.Lock()
	another := err != nil && apierrors.ReasonForError(*which) != apierrors.ReasonForError(err)
	*which = err
	was, silent := m.silentFrom, m.watchErr != nil || m.probeErr != nil
	switch {
	case !silent:
		m.silentFrom = time.Time{}
	case was.IsZero():
		m.silentFrom = time.Now()
	}
	m.mu.Unlock()
	poke(m.write)
	switch {
	case silent && (was.IsZero() || another):
		m.log.Warn("the API server does not answer; packets go on, and so do we", "cause", err)
	case !silent && !was.IsZero():
		m.log.Info("the API server answers again", "after", time.Since(was).Round(time.Millisecond))
	}
}

// enter sets the state and its cause, and logs a change of either.
func (m *Manager) enter(state lease.State, notes []string, cause error) {
	own := m.state.held
	m.mu.Lock()
	before := m.status
	m.status.State, m.status.Err, m.status.Own, m.status.Notes = state, cause, own, notes
	m.mu.Unlock()
	if !slices.Equal(before.Notes, notes) {
		for _, n := range notes {
			m.log.Warn("not all of our Node is used", "note", n)
		}
	}
	poke(m.write)
	if before.State == state && text(before.Err) == text(cause) && before.Own.Subnets == own.Subnets {
		return
	}
	if cause != nil && !errors.Is(cause, errNotWritten) {
		m.log.Warn("lease", "state", state.String(), "subnets", own.String(), "cause", cause)
		return
	}
	m.log.Info("lease", "state", state.String(), "subnets", own.String())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"
)

// Status is a keeper's state at one moment, for readiness, metrics and operators.
type Status struct {
	State State
	// Own is our record; its Subnets are zero while we have none.
	Own Record
	// Err is why the state is not Held, or what the last write met; nil if all is well.
	// It may be a *RivalError, *ContestError, *TakenError, *IPv6OnlyError, or wrap ErrOutOfSubnets.
	Err error
	// Notes say why our subnet is not the one that we had before.
	Notes []string
	// StoreSeen is when the store last answered, if only that nothing has changed; zero before
	// the first time.
	StoreSeen time.Time
	// StoreErr is why the store does not answer; nil while it does.
	StoreErr error
	// StoreRefuses says that the store answered, and that StoreErr is its refusal: its answers
	// keep StoreSeen fresh, so that StoreSince counts.
	StoreRefuses bool
	// StoreSince is when StoreErr began, where that is known; zero if it is not.
	StoreSince time.Time
	// ClusterID and Revision are the store's.
	ClusterID string
	Revision  int64
	// CacheErr is why the state is not saved for a start without the store; nil if it is.
	CacheErr error
	// Alarm says why removals are being disbelieved; "" if none are.
	Alarm string
	// ConfigErr says that the store's configuration is gone or not good, or, as a
	// *ConfigChangedError, that it is not the one in use. StoreConfig is its text, nil for none;
	// ConfigSeen says that the store has been asked for it.
	ConfigErr   error
	StoreConfig []byte
	ConfigSeen  bool
	// Peers is how many records passed the checks.
	Peers int
	// Rejected are the records that did not.
	Rejected []Rejected
}

// Ready reports whether the lease is held and not expired.
func (s Status) Ready() bool { return s.State == Held }

// RejectedCount counts the rejected records of each reason. Reasons without any are absent.
func (s Status) RejectedCount() map[RejectReason]int {
	n := map[RejectReason]int{}
	for _, r := range s.Rejected {
		n[r.Reason]++
	}
	return n
}

// Status returns the present state; the caller owns it. A lease whose time has
// run out is Expired from that moment on.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.status
	if heard := k.store.Heard(); heard.After(s.StoreSeen) { // a quiet store answers, and says nothing
		s.StoreSeen = heard
	}
	s.Notes, s.Rejected = slices.Clone(s.Notes), slices.Clone(s.Rejected)
	if s.State == Held && !s.Own.Expires.IsZero() && !time.Now().Before(s.Own.Expires) {
		s.State = Expired
	}
	return s
}

// report changes the status under its lock.
func (k *Keeper) report(change func(*Status)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.status)
}

// storeSilent notes that the store does not answer, and logs it the first time: the
// texts of later failures differ, and say no more.
func (k *Keeper) storeSilent(cause error) {
	k.report(func(s *Status) { s.StoreErr = cause })
	if k.silent.IsZero() {
		k.silent = time.Now()
		k.log.Warn("the store does not answer; packets go on, and so do we", "cause", cause)
	}
}

// storeAnswered notes that it does.
func (k *Keeper) storeAnswered(now time.Time) {
	k.report(func(s *Status) { s.StoreSeen, s.StoreErr = now, nil })
	if !k.silent.IsZero() {
		k.log.Info("the store answers again", "after", now.Sub(k.silent).Round(time.Millisecond))
		k.silent = time.Time{}
	}
}

// enter sets the state and its cause, and logs a change of either.
func (k *Keeper) enter(state State, cause error) {
	var own Record
	if k.held != nil {
		own = k.held.Record
	}
	var before Status
	k.report(func(s *Status) {
		before = *s
		s.State, s.Err, s.Own = state, cause, own
	})
	if before.State == state && text(before.Err) == text(cause) && before.Own.Subnets == own.Subnets {
		return
	}
	level := slog.LevelInfo
	switch {
	case k.putBacks.quarrel():
		level = slog.LevelDebug // it goes on and on
	case cause != nil:
		level = slog.LevelWarn
	}
	if cause != nil {
		k.log.Log(context.Background(), level, "lease", "state", state.String(), "subnets", own.Subnets.String(), "cause", cause)
		return
	}
	k.log.Log(context.Background(), level, "lease", "state", state.String(), "subnets", own.Subnets.String())
}

// text is what makes a cause a new one: not how long a rival's record still lives.
func text(err error) string {
	var rival *RivalError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &rival):
		still := *rival
		still.Remaining = 0
		return still.Error()
	}
	return err.Error()
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoConfig says that the store has no network configuration.
var ErrNoConfig = errors.New("the store has no network configuration")

// ConfigChangedError says that the store's configuration is good, and not the one in use.
type ConfigChangedError struct {
	InUse, Store NetworkConfig
}

func (e *ConfigChangedError) Error() string {
	return "the store's network configuration is not the one in use: restart to apply it"
}

// callTimeout bounds one call of the store.
const callTimeout = 10 * time.Second

// read asks the store for everything.
func (k *Keeper) read(ctx context.Context) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := k.store.Snapshot(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read the store: %w", err)
	}
	return s, nil
}

// freshen returns s, or a new snapshot if s is older than what we know: a watch
// may deliver what it read before our last write. What is older still then is a
// store that went back.
func (k *Keeper) freshen(ctx context.Context, s Snapshot) (Snapshot, error) {
	older := s.ClusterID == k.mem.ClusterID && s.Revision < k.mem.Revision ||
		k.held != nil && s.ClusterID == k.held.cluster && s.Revision < k.held.Revision
	if !older {
		return s, nil
	}
	return k.read(ctx)
}

// observe takes in what the store holds.
func (k *Keeper) observe(s Snapshot) {
	now := time.Now()
	theirs := s.Config
	configErr := k.checkConfig(&s)
	k.storeAnswered(now)
	k.report(func(st *Status) {
		st.ConfigErr, st.StoreConfig, st.ConfigSeen = configErr, theirs, true
		st.ClusterID, st.Revision = s.ClusterID, s.Revision
	})
	k.confirmed = true
	alarm := k.mem.Alarm()
	k.mem, k.bad = Believe(k.mem, s, now), s.Bad
	k.mem.Config = k.o.RawConfig // what we go by, whatever the store has
	if next := k.mem.Alarm(); next != "" && alarm == "" {
		k.log.Error("removals are not believed", "alarm", next)
	}
	k.judgeHeld(s)
}

// checkConfig compares the store's configuration with ours. One that is not good is taken out
// of s, so that nobody goes by it.
func (k *Keeper) checkConfig(s *Snapshot) error {
	k.seed = s.Config == nil && k.o.Seed != nil
	if s.Config == nil {
		return ErrNoConfig
	}
	cfg, err := k.o.CheckConfig(s.Config)
	if err != nil {
		s.Config = nil
		return err
	}
	if !cfg.Equal(k.o.Config) {
		return &ConfigChangedError{InUse: k.o.Config, Store: cfg}
	}
	return nil
}

// judgeHeld draws the consequences for our own record.
func (k *Keeper) judgeHeld(s Snapshot) {
	if k.held == nil {
		return
	}
	v, found, err := k.held.judge(k.self(), s)
	k.gone = false
	switch v {
	case verdictHeld:
		k.keep(found, s.ClusterID)
	case verdictRewrite:
		if k.held.cluster == "" {
			return // not confirmed yet: acquire decides
		}
		k.log.Warn("our record is not as we wrote it: rewriting", "subnets", found.Subnets.String(), "revision", found.Revision)
		k.rewriteAt(found.Revision, s.ClusterID, found.Reservation)
	case verdictGone:
		k.gone = true
		if k.held.cluster != "" {
			k.enter(Expired, fmt.Errorf("the store has lost our record %s", k.held.Subnets))
		}
	case verdictTaken:
		k.give(Lost, err)
	case verdictCloned:
		k.cloned = true
		k.give(Cloned, err)
	case verdictGarbled:
		if found.Revision != 0 {
			k.rewriteAt(found.Revision, s.ClusterID, k.held.Reservation)
		}
		k.enter(k.stateNow(), err)
	}
}

// keep takes over what the store says about the record that we hold.
func (k *Keeper) keep(found Record, cluster string) {
	h := k.held
	known := h.Expires
	if found.Expires.IsZero() && !found.Reservation {
		found.Expires = known
	}
	moved := found.Revision != h.Revision || found.Expires.Sub(known).Abs() > time.Minute
	h.Record, h.cluster, h.unsure = found, cluster, nil
	k.written = found.Attrs
	if moved || found.Reservation {
		k.schedule()
	}
}

// rewriteAt makes a write due that replaces what is at revision.
func (k *Keeper) rewriteAt(revision int64, cluster string, reservation bool) {
	k.held.Revision, k.held.cluster, k.held.Reservation = revision, cluster, reservation
	k.held.unsure = nil
	k.written = Attrs{}
}

// give gives the subnet up. It is what we ask for first when we acquire again.
func (k *Keeper) give(state State, why error) {
	k.previous = k.held.Subnets
	k.held, k.gone = nil, false
	k.enter(state, why)
}

// schedule sets when the held record is renewed.
func (k *Keeper) schedule() {
	k.renew = time.Time{}
	if !k.held.Reservation {
		k.renew = renewAt(k.held.Expires, k.o.RenewMargin, k.o.Rand)
	}
}

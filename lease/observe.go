package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoConfig says that the store has no network configuration.
var ErrNoConfig = errors.New("the store has no network configuration")

// ConfigChangedError says that the store's configuration is not the one in use.
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

// observe takes in what the store holds. The error is a *ConfigChangedError, and
// only before the first snapshot since the start.
func (k *Keeper) observe(s Snapshot) error {
	now := time.Now()
	configErr := k.checkConfig(&s)
	k.storeAnswered(now)
	var before error
	k.report(func(st *Status) {
		before, st.ConfigErr = st.ConfigErr, configErr
		st.ClusterID, st.Revision = s.ClusterID, s.Revision
	})
	var changed *ConfigChangedError
	if errors.As(configErr, &changed) && !k.confirmed {
		k.mem.Config = s.Config
		k.saveNow() // so that the next start uses it
		return changed
	}
	k.confirmed = true
	k.logConfig(before, configErr)
	alarm := k.mem.Alarm()
	k.mem, k.bad = Believe(k.mem, s, now), s.Bad
	if next := k.mem.Alarm(); next != "" && alarm == "" {
		k.log.Error("removals are not believed", "alarm", next)
	}
	k.judgeHeld(s)
	return nil
}

// logConfig says once that the store's configuration became another than the one in
// use, and once that it is that one again.
func (k *Keeper) logConfig(before, now error) {
	switch {
	case text(now) == text(before):
	case now == nil:
		k.log.Info("the store's network configuration is the one in use again")
	default:
		k.log.Warn("the store's network configuration is not followed; packets go on as before", "cause", now)
	}
}

// checkConfig compares the store's configuration with ours. One that does not
// parse is taken out of s, so that nobody goes by it.
func (k *Keeper) checkConfig(s *Snapshot) error {
	k.seed = s.Config == nil && k.o.Seed != nil
	if s.Config == nil {
		return ErrNoConfig
	}
	cfg, err := ParseNetworkConfig(s.Config)
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

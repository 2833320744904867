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
	k.judge(s)
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

// judge draws the consequences for our own record, and of others with our identity.
func (k *Keeper) judge(s Snapshot) {
	before := k.contest
	k.contest = nil
	if k.held != nil {
		k.judgeHeld(before, s)
	}
	if k.contest != nil || !k.needsAcquire() {
		return
	}
	if twin := k.twin(s); twin != nil {
		k.contend(before, k.newTwin(*twin, s))
	} else if before != nil && before.twin && before.lives != "" {
		if !before.gone { // whoever lives puts it back
			before.gone, before.silent, before.need = true, 0, silentShort
		}
		k.contest = before
	}
}

// twin is the first record with our identity that is not known to be ours, if none is: who has
// one of its own takes no other. nil for none.
func (k *Keeper) twin(s Snapshot) (first *Record) {
	self := k.self()
	for i := range s.Records {
		switch r := &s.Records[i]; {
		case self.Owns(r.Attrs) != Ours:
		case self.Recognises(r.Attrs) || isSilent(k.cleared, *r):
			return nil
		case first == nil:
			first = r
		}
	}
	return first
}

// twins are the subnets of the records with our identity that are not known to be ours.
func (k *Keeper) twins(s Snapshot) map[Subnets]bool {
	self, out := k.self(), map[Subnets]bool{}
	for _, r := range s.Records {
		if self.Owns(r.Attrs) == Ours && !self.Recognises(r.Attrs) && !isSilent(k.cleared, r) {
			out[r.Subnets] = true
		}
	}
	return out
}

// judgeHeld is judge while we hold a subnet.
func (k *Keeper) judgeHeld(before *contest, s Snapshot) {
	h := k.held
	v, found, err := h.judge(k.self(), s, k.cleared)
	k.gone = false
	switch v {
	case verdictHeld:
		k.keep(found, s.ClusterID)
	case verdictRewrite:
		if k.confirmedHolder() { // else acquire decides
			k.putBack(found.Revision, s.ClusterID, found.Reservation && found.Node() == k.o.Node, "is not as we wrote it")
		}
	case verdictGone:
		switch {
		case k.valid():
			k.putBack(0, s.ClusterID, false, "is gone")
		default:
			k.gone = true
			if k.confirmedHolder() {
				k.enter(Expired, fmt.Errorf("the store has lost our record %s", h.Subnets))
			}
		}
	case verdictTaken:
		switch c := k.newForeign(found, s); {
		case found.Node() == "" && !c.yields && found.Subnets == h.Subnets: // whom nobody can ask
			k.putBack(found.Revision, s.ClusterID, false, "was written over by "+describeOwner(found.Node(), found.Address()))
		case found.Node() == "" && c.yields && k.o.Underlay == nil:
			k.give(Lost, h.taken(found))
		default:
			k.contend(before, c)
		}
	case verdictTwin:
		if k.confirmedHolder() { // else acquire decides
			k.contend(before, k.newTwin(found, s))
		}
	case verdictGarbled:
		if found.Revision != 0 {
			k.putBack(found.Revision, s.ClusterID, h.Reservation, "was overwritten")
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
	h.at, h.back = found.Revision, false
	k.written = found.Attrs
	if moved || found.Reservation {
		k.schedule()
	}
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

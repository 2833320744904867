package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"weft/lease"
)

// ErrNoConfig says that the store has no network configuration.
var ErrNoConfig = errors.New("the store has no network configuration")

// ConfigChangedError means that the store's configuration is valid, and differs from the one in use.
type ConfigChangedError struct {
	InUse, Store lease.NetworkConfig
}

func (e *ConfigChangedError) Error() string {
	return "the store's network configuration is not the one in use: restart to apply it"
}

// takeSnapshot takes in a snapshot of the watch, and lets work that was put off go on. One that is older than
// what we know, as a watch may deliver what it read before our last write, is a reason to read the store:
// what is older still then is a store that went back. After that the watch may still tell what was before, at
// a higher revision, so that the store is read until it has come as far. n is what came with it.
func (c *Core) takeSnapshot(s lease.Snapshot, n News) {
	held := c.own.held
	mem := c.Peers.Memory()
	if !c.store.wentBack && !(s.ClusterID == mem.ClusterID && s.Revision < mem.Revision) &&
		!(held != nil && s.ClusterID == held.cluster && s.Revision < held.Revision) {
		c.believeSnapshot(s, n)
		return
	}
	cluster, revision := s.ClusterID, s.Revision
	n.Snapshot = nil // it is large, and of no use any more
	c.call(ReadStore{}, func(r Result) {
		if r.Err != nil {
			c.duties.add(dutyRead)
			c.takeMessages(n)
			return
		}
		if r.Snapshot.ClusterID == cluster && r.Snapshot.Revision >= revision {
			c.store.wentBack = false // but for what this snapshot shows
		}
		c.believeSnapshot(r.Snapshot, n)
	})
}

func (c *Core) believeSnapshot(s lease.Snapshot, n News) {
	c.observe(s)
	if c.retry.Sub(c.Now) > backoffFirst {
		c.retry = c.Now.Add(c.Backoff(1, backoffFirst, backoffMost))
	}
	c.takeMessages(n)
}

// observe takes in what the store holds. The result has no configuration unless it is good, so that nobody
// goes by a bad one.
func (c *Core) observe(s lease.Snapshot) lease.Snapshot {
	st := &c.store
	if s.ClusterID != st.clusterID || s.Revision < st.revision {
		c.cleared = nil // these revisions are another record's now
		if st.clusterID != "" {
			st.wentBack = true
			c.own.forgetRevision()
		}
	} else if c.own.held != nil && c.own.held.reused(s) {
		// which a store says that went back while we did not hear it
		c.cleared = nil
		c.own.forgetRevision()
	}
	if c.needsAcquire() && c.Now.Sub(c.silent) > silenceTrusted {
		c.cleared = nil
	}
	st.config, st.asked, st.clusterID, st.revision = s.Config, true, s.ClusterID, s.Revision
	st.configErr = c.checkConfig(&s)
	c.storeAnswered()
	c.Believe(s, c.o.RawConfig)
	c.judge(s)
	return s
}

// checkConfig compares the store's configuration with ours. One that is not good is taken out of s.
func (c *Core) checkConfig(s *lease.Snapshot) error {
	c.duties.drop(dutySeed)
	if s.Config == nil {
		if c.o.Seed != nil {
			c.duties.add(dutySeed)
		}
		return ErrNoConfig
	}
	cfg, err := c.o.CheckConfig(s.Config)
	if err != nil {
		s.Config = nil
		return err
	}
	if !cfg.Equal(c.o.Config) {
		return &ConfigChangedError{InUse: c.o.Config, Store: cfg}
	}
	return nil
}

// judge draws the consequences for our own record, and of others with our identity.
func (c *Core) judge(s lease.Snapshot) {
	before := c.contest
	c.contest = nil
	if c.own.held != nil {
		c.judgeHeld(before, s)
	}
	if c.contest != nil || !c.needsAcquire() {
		return
	}
	if twin := c.twin(s); twin != nil {
		c.contend(before, c.newTwin(*twin, s))
	} else if before.overLiving() {
		c.contest = before.vanish()
	}
}

// twin is the first record with our identity that is not known to be ours, if none is: who has
// one of its own takes no other. nil for none.
func (c *Core) twin(s lease.Snapshot) (first *lease.Record) {
	self := c.self()
	for _, r := range s.Records {
		switch {
		case self.Owns(r.Attrs) != lease.Ours:
		case self.Recognises(r.Attrs) || isSilent(c.cleared, *r):
			return nil
		case first == nil:
			first = r
		}
	}
	return first
}

// twins are the subnets of the records with our identity that are not known to be ours.
func (c *Core) twins(s lease.Snapshot) map[lease.Subnets]bool {
	self, out := c.self(), map[lease.Subnets]bool{}
	for _, r := range s.Records {
		if self.Owns(r.Attrs) == lease.Ours && !self.Recognises(r.Attrs) && !isSilent(c.cleared, *r) {
			out[r.Subnets] = true
		}
	}
	return out
}

// judgeHeld is judge while we hold a subnet.
func (c *Core) judgeHeld(before *contest, s lease.Snapshot) {
	h := c.own.held
	v, found, err := h.judge(c.self(), s, c.cleared)
	if c.own.tenure == tenureGone && !c.duties.any(dutyVerify) {
		c.own.tenure = tenureEnded
	}
	switch v {
	case verdictHeld:
		// of a write of ours that was not answered
		unheard := found.Revision != h.Revision && found.Created == found.Revision
		c.keep(found, s.ClusterID)
		if unheard {
			c.doubt(h)
		}
		if !c.duties.any(dutyVerify) {
			h.seen = s.Revision
		}
	case verdictRewrite:
		if c.own.confirmed() { // else acquire decides
			c.displaced(found.Revision, s.ClusterID, found.Reservation && found.Node() == c.o.Node,
				"is not as we wrote it")
			if found.Created == found.Revision && c.self().Recognises(found.Attrs) {
				// by a write of ours that came late
				h.Created = found.Created
				c.doubt(h)
			}
		}
	case verdictGone:
		h.beside = nil
		for _, r := range s.Records {
			foreign := c.self().Owns(r.Attrs) != lease.Ours
			if r.Overlaps(h.Subnets) && foreign && r.Node() != "" { // flannel's cannot be asked
				h.beside = append(h.beside, *r)
			}
		}
		c.vanished(s.ClusterID)
	case verdictTaken:
		if h.Reservation {
			// which the store has lost: it is a lease that ends, or whoever is there now would be waited for without
			// an end
			h.Reservation, h.Expires = false, c.Now.Add(lease.TTL)
		}
		d := c.newForeign(found, s)
		d.gone = !slices.ContainsFunc(s.Records, func(r *lease.Record) bool { return r.Subnets == h.Subnets })
		switch {
		case found.Node() == "" && d.kind == overOurs && found.Subnets == h.Subnets: // whom nobody can ask
			c.displaced(found.Revision, s.ClusterID, false, "was written over by "+
				lease.DescribeOwner(found.PublishedName(), found.Node(), found.Address()))
		case found.Node() == "" && d.kind == overSpent && c.o.Underlay == nil:
			c.giveUp(h.taken(found))
		default:
			c.contend(before, d)
		}
	case verdictTwin:
		if c.own.confirmed() { // else acquire decides
			c.contend(before, c.newTwin(found, s))
		}
	case verdictGarbled:
		if before.overLiving() { // what was overwritten was the other's, who puts it back
			if !c.needsAcquire() { // else it is kept once no other twin is there
				c.contest = before.vanish()
			}
			return
		}
		if found.Revision != 0 {
			c.displaced(found.Revision, s.ClusterID, h.Reservation, "was overwritten")
		}
		c.cause = err
	}
}

// vanished draws the consequences of a store that does not have the record that we hold.
func (c *Core) vanished(cluster string) {
	switch {
	case c.own.valid(c.Now):
		c.displaced(0, cluster, false, "is gone")
	case c.own.confirmed():
		c.duties.drop(dutyVerify)
		c.own.tenure = tenureGone
		c.cause = fmt.Errorf("the store has lost our record %s", c.own.held.Subnets)
	}
}

// keep takes over what the store says about the record that we hold.
func (c *Core) keep(found lease.Record, cluster string) {
	if c.own.found(found, cluster) {
		c.schedule()
	}
	if !c.duties.any(dutyVerify) {
		c.own.tenure = tenureHeld
	}
}

// giveUp gives the subnet to whoever has it.
func (c *Core) giveUp(why error) {
	c.duties.drop(dutyVerify)
	c.own.drop(tenureLost)
	c.cause = why
}

// storeSilent notes that the store does not answer, and logs it the first time: the
// texts of later failures differ, and say no more. An owner may have answered meanwhile, so its silence says
// nothing.
func (c *Core) storeSilent(cause error) {
	c.store.err = cause
	c.cleared = nil
	if c.contest != nil {
		c.contest.rounds.Silent, c.contest.stirred = 0, true
	}
	if c.store.silent.IsZero() {
		c.store.silent = c.Now
		c.Log(slog.LevelWarn, "the store does not answer; packets go on, and so do we",
			"event", lease.EventStoreLost, "cause", cause)
	}
}

// storeAnswered notes that it does.
func (c *Core) storeAnswered() {
	c.store.seen, c.store.err = c.Now, nil
	if !c.store.silent.IsZero() {
		c.Log(slog.LevelInfo, "the store answers again",
			"event", lease.EventStoreBack, "after", c.Now.Sub(c.store.silent).Round(time.Millisecond))
		c.store.silent = time.Time{}
	}
}

package keeper

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"weft/lease"
	"weft/lease/belief"
)

// Base is what a core consists of whichever store it keeps its lease in: the effects of a step, what it
// believes of the others, and the cache. A Core has one, and so has that of package kube. It has no clock and
// does no I/O. It is not safe for concurrent use.
type Base struct {
	Now    time.Time  // of this step
	Rand   *rand.Rand // draws subnets and jitter
	Local  Local      // what we say about ourselves
	Peers  belief.Outlook
	Source Source
	// Proven says that the configuration can be served, and so may be cached.
	Proven bool

	node, state string // our identity
	out         []Effect
	saver       saver
	caches      bool // there is a Cache
	saving      bool // a SaveCache has no answer yet
	again       bool // the state was to be saved meanwhile
	last        bool // and at once
}

// Source says where the peers come from that we go by.
type Source uint8

const (
	SourceNone  Source = iota // there are none
	SourceCache               // the last run's state: a set can be made, and nothing is saved
	SourceStore               // the store has answered since the start
)

// NewBase returns the base of a core with these options. It takes up the peers of o.Cached, which may be
// nil. The error joins the faults in the options that concern any core.
func NewBase(o Options, now time.Time) (Base, error) {
	var faults []error
	if !lease.ValidNode(o.Node) {
		faults = append(faults, fmt.Errorf("node id %q is not valid", o.Node))
	}
	if o.State != "" && !lease.ValidState(o.State) {
		faults = append(faults, fmt.Errorf("state directory %q is no name", o.State))
	}
	if !o.Config.EnableIPv4 && !o.Config.EnableIPv6 {
		faults = append(faults, errors.New("the network configuration is missing"))
	}
	if o.Rand == nil {
		faults = append(faults, errors.New("there are no random numbers"))
	}
	b := Base{Now: now, Rand: o.Rand, Proven: !o.Unproven, node: o.Node, state: o.State, caches: o.Cache != nil}
	b.Say(o.Local)
	if o.Cached != nil {
		b.Source, b.Peers = SourceCache, belief.NewOutlook(o.Cached.Memory.Expire(now))
	}
	return b, errors.Join(faults...)
}

// Say takes l as what we say about ourselves from now on.
func (b *Base) Say(l Local) { b.Local = l.Signed(b.node, b.state) }

// Begin begins a step at a time that does not go back, and forgets the effects of the last.
func (b *Base) Begin(now time.Time) { b.Now, b.out = now, nil }

// Effects are those that this step asked for.
func (b *Base) Effects() []Effect { return b.out }

// Do asks for an effect.
func (b *Base) Do(e Effect) { b.out = append(b.out, e) }

// Log asks for a line in the log.
func (b *Base) Log(level slog.Level, message string, args ...any) { b.Do(Log{level, message, args}) }

// Believe takes in what the store has, as Outlook.Believe does, and logs a new alarm.
func (b *Base) Believe(s lease.Snapshot, config []byte, refused ...lease.Rejected) {
	if alarm := b.Peers.Believe(s, config, b.Now, refused...); alarm != "" {
		b.Log(slog.LevelError, "removals are not believed", "event", lease.EventRemovalsDoubted, "alarm", alarm)
	}
	b.Source = SourceStore
}

// Publish computes the Set, and hands it out if it differs from the last. news reports whether it does.
func (b *Base) Publish(rules belief.Rules, own lease.Record) (set lease.Set, news bool) {
	if set, news = b.Peers.Set(rules, own); news {
		b.Do(Publish{set})
	}
	return set, news
}

// Save has the cache written if its time has come, or if it is the last chance.
func (b *Base) Save(own lease.Record, last bool) {
	mem := b.Peers.Memory()
	switch {
	case b.Source != SourceStore:
	case b.saving: // one at a time
		b.again, b.last = true, b.last || last
	case !b.saver.want(b.Now, len(mem.Peers), own.Subnets) && !last && b.Now.Before(b.saver.due):
	case !b.caches || !b.Proven || mem.ClusterID == "":
		b.saver.due = time.Time{}
	default:
		b.saving = true
		b.saver.begin(own.Subnets)
		b.Do(SaveCache{belief.Cached{Own: own, Memory: mem}})
	}
}

// Saved notes what became of a save. own is our record now.
func (b *Base) Saved(e Saved, own lease.Record) {
	b.saving = false
	if b.saver.done(b.Now, e.Written, e.Err) {
		b.Log(slog.LevelWarn, "the state was not cached; it is tried again", "cause", e.Err)
	}
	if b.again {
		last := b.last
		b.again, b.last = false, false
		b.Save(own, last)
	}
}

// Saving reports whether a save is under way.
func (b *Base) Saving() bool { return b.saving }

// SaveErr is why the state is not saved; nil if it is, or if there was nothing to save.
func (b *Base) SaveErr() error { return b.saver.err }

// Wait asks to be woken at the earliest of some times, of which the zero one is never.
func (b *Base) Wait(times ...time.Time) {
	at := b.Now.Add(longestSleep)
	for _, t := range append(times, b.Peers.Memory().NextEnd(), b.saver.due) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	b.Do(Wait{at})
}

// Backoff returns the wait after a number of failures in a row: it doubles from first to most, and is drawn
// from the upper half so that nodes do not march in step.
func (b *Base) Backoff(failures int, first, most time.Duration) time.Duration {
	d := most
	if failures >= 1 && failures < 16 {
		d = min(first<<(failures-1), most)
	}
	return d/2 + b.Draw(d/2+1)
}

// Draw returns a duration from 0 to below d, which is positive.
func (b *Base) Draw(d time.Duration) time.Duration { return draw(b.Rand, d) }

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/lease"
)

// Core is the life of one node's lease, and its knowledge of all others. It has no clock, store, file,
// goroutine or lock: its owner reports events and carries out effects. The same options, random numbers,
// times and events give the same effects. A Keeper is a core with a store.
//
// A step is a turn, or part of one. The core takes in news (takeSnapshot, takeMessages), then does what is
// due in the store (nextWork), then what follows for everybody else (finish). If a turn has to wait for the
// store, it leaves a continuation, which continues with the store's Result. A Core is not safe for concurrent
// use.
type Core struct {
	o       Options
	process string // names this process towards others of our identity

	Base
	phase        phase
	continuation continuation    // what the turn waits for; nil between turns
	calls        uint64          // the number of the last one
	news         News            // what has come and was not taken in
	told         *lease.Snapshot // the one in it when the last call began; nil for none

	own     own
	contest *contest // what keeps us from writing; nil for nothing
	putBack putBacks
	cleared map[lease.Subnets]int64 // revisions of records whose owners were asked for and are silent
	silent  time.Time               // since when
	asks    int                     // how many rounds of asking there were, in all contests

	questions []question // of others, which wait for an answer
	spoke     time.Time  // when we last answered one

	duties  duties
	retry   time.Time // no write before this
	failing int       // failures in a row
	races   int       // lost in a row

	store storeFacts
	cause error    // what the last write met; nil if all went well
	notes []string // why our subnet is not the one that we had before
	said  standing // what the log last had
}

// phase is what a core does.
type phase uint8

const (
	idle     phase = iota // before Begin, and after the end
	awaiting              // the watch has said nothing yet, which saves us a read
	keeping
	stopping // was told to stop, and waits for the store's answer
)

// duties are what has to be done in the store before our record is next written. All of them begin
// with a read.
type duties uint8

const (
	dutyRead duties = 1 << iota // what we know may be wrong
	dutySeed                    // the store has no configuration, and we have one
	// we have created a record, and another may have created a conflicting one before
	dutyVerify
)

func (d duties) any(of duties) bool { return d&of != 0 }
func (d *duties) add(one duties)    { *d |= one }
func (d *duties) drop(one duties)   { *d &^= one }

// storeFacts is what was last seen of the store.
type storeFacts struct {
	// when it last answered, and since when it does not; zero for never, and while it does
	seen, silent time.Time
	err          error // why it does not
	asked        bool  // its configuration is known
	config       []byte
	configErr    error
	clusterID    string
	revision     int64
	// wentBack says that it counts from further back since, or is another cluster. What the watch has told us
	// may be of the time before, until the store confirms it.
	wentBack bool
}

// continuation is what a turn waits for: it goes on with the Result of its Call.
type continuation func(Result)

// NewCore returns a core that has done nothing yet. It uses the options that are no I/O; of Cache and
// Underlay it uses only whether they are set. Rand is required, and belongs to the core from now on. process
// is a name that no other process has. The error joins every fault in the options.
func NewCore(o Options, process string, now time.Time) (*Core, error) {
	if o.RenewMargin == 0 {
		o.RenewMargin = time.Hour
	}
	base, err := NewBase(o, now)
	if err := errors.Join(append(o.faults(), err)...); err != nil {
		return nil, err
	}
	if o.CheckConfig == nil {
		o.CheckConfig = lease.ParseNetworkConfig
	}
	if o.RawConfig == nil {
		if o.RawConfig, err = json.Marshal(o.Config); err != nil {
			return nil, fmt.Errorf("the network configuration cannot be cached: %w", err)
		}
	}
	c := &Core{Base: base, o: o, process: process}
	c.own.previous = o.Previous.Masked() // subnet.env has the gateway's address
	if from := o.Cached; from != nil && from.Own.Subnets != (lease.Subnets{}) && from.Own.Node() == o.Node {
		c.own.recall(from.Own)
	}
	c.o.Cached = nil // which is not needed any more once the store was heard
	c.said = c.standing()
	return c, nil
}

// faults are those of the options that NewBase does not look at, one error for each.
func (o Options) faults() (faults []error) {
	if o.RenewMargin < time.Minute || o.RenewMargin > lease.TTL-time.Minute {
		faults = append(faults, fmt.Errorf("renew margin %s: want 1m to 23h59m", o.RenewMargin))
	}
	if o.Config.EnableIPv4 && !o.Local.Attrs.PublicIP.Is4() {
		faults = append(faults, fmt.Errorf("EnableIPv4 true: want an IPv4 address to publish, not %s",
			o.Local.Attrs.PublicIP))
	}
	if a := o.Local.Attrs.PublicIPv6; o.Config.EnableIPv6 && (!a.Is6() || a.Is4In6()) {
		faults = append(faults, fmt.Errorf("EnableIPv6 true: want an IPv6 address to publish, not %s", a))
	}
	return faults
}

// Step takes in an event of the time now, which never goes back, and returns the effects to carry out.
func (c *Core) Step(now time.Time, e Event) []Effect {
	c.Base.Begin(now)
	turn := true // else only what has come meanwhile is a reason for one
	switch e := e.(type) {
	case Begin:
		c.begin()
	case News:
		c.accept(e)
	case Result:
		c.result(e)
		turn = false
	case Saved:
		c.Saved(e, c.own.record())
		if c.continuation == nil {
			c.wait()
		}
		turn = false
	case Stop:
		c.accept(e.Last)
		c.stop()
	case Tick:
	}
	for c.running() && c.continuation == nil && (turn || c.news.any()) {
		c.turn()
		turn = false
	}
	if c.phase == stopping && c.continuation == nil {
		c.end()
	}
	return c.Effects()
}

func (c *Core) running() bool {
	return c.phase == awaiting || c.phase == keeping
}

// call asks for an operation, and leaves the turn to the continuation. After Stop no new calls start.
func (c *Core) call(op Operation, then continuation) {
	if c.phase == stopping {
		return
	}
	c.calls++
	c.continuation, c.told = then, c.news.Snapshot
	c.Do(Call{Number: c.calls, Operation: op})
}

// result goes on with the turn that waits for r.
func (c *Core) result(r Result) {
	if c.continuation == nil || r.Number != c.calls {
		return
	}
	then, told := c.continuation, c.told
	c.continuation, c.told = nil, nil
	if n := c.news.Snapshot; n != nil && n.ClusterID == r.Snapshot.ClusterID {
		switch {
		case n == told && n.Revision <= r.Snapshot.Revision:
			c.news.Snapshot = nil // what was read is later, also if a store that went back uses the revision again
		case n.Revision == r.Snapshot.Revision && !sameRecords(n.Records, r.Snapshot.Records):
			// The store uses the revision again, and either may be the later one: it is read once more.
			c.news.Snapshot = nil
			c.call(ReadStore{}, then)
			return
		}
	}
	then(r)
}

func sameRecords(a, b []*lease.Record) bool {
	return slices.EqualFunc(a, b, func(a, b *lease.Record) bool {
		return a == b || a.Revision == b.Revision && lease.SameRecord(*a, *b)
	})
}

func (c *Core) begin() {
	if c.phase != idle {
		return
	}
	c.Do(Listen{c.o.Node})
	c.Do(Watch{})
	c.phase = keeping
	if c.Source != SourceNone {
		c.publish()
	}
	if c.Source != SourceStore {
		c.phase = awaiting
		c.retry = c.Now.Add(callTimeout)
	}
}

// stop lets nothing begin any more.
func (c *Core) stop() {
	if c.running() {
		c.phase = stopping
	}
}

// end saves what is not saved: the configuration may have been proven in this moment.
func (c *Core) end() {
	c.phase, c.news = idle, News{}
	c.Save(c.own.record(), true)
}

// accept keeps news for the next turn. Our own news counts at once.
func (c *Core) accept(n News) {
	if n.Local != nil {
		c.Say(*n.Local)
	}
	c.Proven = c.Proven || n.Proven
	c.news.Merge(n)
}

// turn takes in the news and does what is due, as far as it gets without the store.
func (c *Core) turn() {
	n := c.news
	c.news = News{}
	if n.Watched && c.phase == awaiting {
		c.phase, c.retry = keeping, time.Time{}
	}
	if n.Lost != nil {
		c.storeSilent(n.Lost)
	}
	if n.Snapshot != nil {
		c.takeSnapshot(*n.Snapshot, n)
		return
	}
	c.takeMessages(n)
}

// finish is the end of a turn: what follows for everybody else of what is known now.
func (c *Core) finish() {
	c.Peers.Expire(c.Now)
	if c.own.tenure == tenureHeld && c.own.overdue(c.Now) && c.state(c.Now) == lease.Expired {
		c.own.tenure, c.cause = tenureEnded, errRunOut
	}
	if c.Source != SourceNone && (c.own.tenure == tenureHeld || !c.duties.any(dutyVerify)) {
		c.publish()
	} else if due := c.saver.due; !due.IsZero() && !c.Now.Before(due) {
		c.Save(c.own.record(), true)
	}
	c.say()
	c.wait()
}

var errRunOut = errors.New("the lease has run out, and the store did not take a renewal")

// wait asks to be woken when there is something to do though nothing happens.
func (c *Core) wait() {
	if c.phase == idle || c.phase == stopping {
		return
	}
	var next, ends time.Time
	held := c.own.held
	if held != nil {
		next = c.own.renew
		if held.Expires.After(c.Now) {
			ends = held.Expires
		}
	}
	if c.pending() {
		if next = c.notBefore(); next.Before(c.Now) {
			next = c.Now
		}
	}
	c.Wait(next, ends, c.answerDue())
}

// self is who we are when ownership is decided.
func (c *Core) self() lease.Self {
	a := c.Local.Attrs
	return lease.Self{Node: c.o.Node, State: c.o.State, PublicIP: a.PublicIP, PublicIPv6: a.PublicIPv6}
}

// Signed returns a copy of l with the identity and the state directory of its author.
func (l Local) Signed(node, state string) Local {
	w := lease.Weft{}
	if l.Attrs.Weft != nil {
		w = *l.Attrs.Weft
	}
	w.Node, w.State = node, state
	w.Recv, w.Addrs = slices.Clone(w.Recv), slices.Clone(w.Addrs)
	l.Attrs.Weft = &w
	l.Underlay, l.Store = slices.Clone(l.Underlay), slices.Clone(l.Store)
	return l
}

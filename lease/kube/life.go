package kube

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
)

// Life is the life of one node in a cluster, without a clock, an API server, a file or a goroutine. A Manager
// is a Life with those; the simulator in test/sim has many. The same options, random numbers, times and
// events give the same effects. It is not safe for concurrent use, but for its table, into which a watch
// writes.
//
// A step takes an event in, and then does all that follows from what is known, in a turn.
type Life struct {
	keeper.Base
	o     Options // of which it uses what is no I/O; of Cache and Underlay only whether there is one
	keys  keys
	pace  pace
	phase phase
	under request // what is asked of the API server; none for nothing

	table *table     // what the watch has said of Nodes; nil until our Node's name is known
	heard func()     // is called after each word of the API server
	tell  func(news) // is called with what is new in the table
	said  news       // what the table told meanwhile, where nobody else is told

	name      string        // of our Node
	ours      *corev1.Node  // as the table has it; nil if it is not there
	view      view          // all Nodes, when they were last read
	changes   changes       // what came since then
	overwrite [2]netip.Addr // what an administrator has us publish instead
	server    serverFacts

	began  keeper.Source  // what Source was at the start
	once   []lease.Record // peers of an earlier set, whose Nodes still have their podCIDRs
	ownUID string         // of our Node, when it was last seen

	tenure   tenure
	held     lease.Record // our own; its Subnets are zero while we have none
	namesake namesake
	waitsFor string // the Node that has our podCIDRs already; "" for none
	standing standing
	writer   writer
	reporter reporter
	parted   bool // the end has begun
}

// phase is what a Life does.
type phase uint8

const (
	idle     phase = iota // before keeper.Begin, and after the end
	naming                // asks for the name of our Node
	keeping               // watches, publishes and writes
	stopping              // was told to stop, and waits for an answer, or for that to its last write
)

// request is what a Life has asked of the API server, beside the watch and the signs of life.
type request uint8

const (
	none request = iota
	finding
	patching
	parting // the last write
)

// tenure is how we have our podCIDR.
type tenure uint8

const (
	seeking tenure = iota // there was none since the start, but perhaps in the last run
	given                 // our Node has it, or had it, and no other Node has
	lost                  // another Node has it
)

// standing is what people see of the life.
type standing struct {
	state lease.State
	cause error // why the state is not Held
	notes []string
	own   lease.Subnets
}

// pace is the times that a test shortens.
type pace struct {
	probe, answer, retryFirst, retryMost time.Duration
}

// NewLife returns a life that has not begun. prefix is that of the annotations, and conditioned says that the
// condition NetworkUnavailable is kept. Of the options those are used that are no I/O; of Cache and Underlay
// only whether there is one. Rand is required, and the life's from now on. The error joins every fault in
// prefix and options.
func NewLife(prefix string, conditioned bool, o Options, now time.Time) (*Life, error) {
	k, err := newKeys(prefix)
	if err != nil {
		return nil, err
	}
	base, err := keeper.NewBase(o.Options, now)
	if err := errors.Join(err, o.check()); err != nil {
		return nil, err
	}
	c := &Life{
		Base: base, o: o, keys: k,
		pace: pace{
			probe: probeAfter, answer: probeTimeout, retryFirst: time.Second, retryMost: time.Minute,
		},
		reporter: reporter{conditions: conditioned, broken: brokenFor, problem: problemFor, beat: beatLeast},
	}
	c.heard = func() {} // whatever the table is told is handed on at once
	c.tell = func(n news) { c.said.merge(n) }
	c.writer.limit = rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	c.began, c.standing.state = c.Source, lease.Acquiring
	if o.Cached != nil {
		c.restore(o.Cached)
		c.o.Cached = nil // which is not needed any more once the API server was heard
	}
	return c, nil
}

// restore takes up what a run before had, and cached.
func (c *Life) restore(from *belief.Cached) {
	mem := c.Peers.Memory()
	mem.Peers = slices.Clone(mem.Peers)
	for i := range mem.Peers {
		// The file is written when something changes, which may be long ago: a Node lasts
		// until it is deleted.
		if p := &mem.Peers[i]; !p.Held {
			p.Until = c.Now.Add(lease.TTL)
		}
	}
	c.Peers = belief.NewOutlook(mem)
	if from.Own.Subnets == (lease.Subnets{}) || from.Own.Node() != c.o.Node {
		return
	}
	c.held = from.Own
	if from.Own.Kube != nil {
		c.ownUID = from.Own.Kube.UID
	}
	c.standing.state, c.standing.own = lease.Unconfirmed, c.held.Subnets
}

// Step takes in what has happened at now, which does not go back, and returns what is to be done. e is a
// keeper.Begin, Tick, News, Saved or Stop, which mean what they mean for a keeper.Core, or a type of
// event.go.
// Before Begin, and after the end, everything is taken in and nothing is done.
func (c *Life) Step(now time.Time, e keeper.Event) []Effect {
	c.Base.Begin(now)
	if c.parted && c.phase == idle {
		return nil
	}
	c.take(e)
	if n := c.said; n != (news{}) {
		n.heard, c.said = now, news{}
		c.take(n)
	}
	return c.Effects()
}

// take takes in one event, and does what follows.
func (c *Life) take(e keeper.Event) {
	if c.table != nil {
		c.ours = c.table.ourNode()
	}
	switch e := e.(type) {
	case keeper.Begin:
		c.begin()
	case news:
		c.accept(e)
	case keeper.News:
		c.accept(news{local: e.Local, proven: e.Proven})
	case Watches:
		c.accept(news{watch: &e})
	case Answered:
		c.accept(news{answer: &e})
	case DataPath:
		c.accept(news{path: &e})
	case Listed, Saw, Gone, Bookmarked:
		if c.table == nil {
			return
		}
		c.table.take(e)
		n := c.said
		n.heard, c.said = c.Now, news{}
		c.ours = c.table.ourNode()
		c.accept(n)
	case Found:
		c.found(e)
	case Patched:
		c.patched(e)
	case Probed:
		c.probed(e.Err)
	case keeper.Saved:
		c.Saved(e, c.held)
		if c.phase == keeping {
			c.rest() // what is saved is no reason to save
			return
		}
	case stop:
		c.accept(e.last)
		c.stop()
	case keeper.Stop:
		c.stop()
	}
	switch c.phase {
	case idle:
	case naming:
		c.findName()
	case keeping:
		c.turn()
	case stopping:
		if c.under == none {
			c.end()
		}
	}
}

func (c *Life) begin() {
	if c.phase != idle {
		return
	}
	c.phase = naming
	if c.Source == keeper.SourceCache {
		c.publish()
	}
}

// accept takes news in.
func (c *Life) accept(n news) {
	if n.heard.After(c.server.heard) {
		c.server.heard = n.heard
	}
	if n.changed {
		c.changes.add(n.urgent, c.Now)
	}
	if n.watch != nil {
		c.noteServer(&c.server.watchErr, n.watch.Err)
	}
	if n.answer != nil {
		c.namesake.answered(*n.answer, c.Now)
	}
	if n.local != nil {
		c.Say(*n.local)
	}
	if n.path != nil {
		c.reporter.path = n.path
	}
	c.Proven = c.Proven || n.proven
}

// findName asks which Node is ours, until that is known.
func (c *Life) findName() {
	if c.under == none && !c.Now.Before(c.writer.retry) {
		c.under = finding
		c.Do(FindNode{})
	}
	if c.under == none {
		c.Do(keeper.Wait{Until: c.writer.retry})
	}
}

// found begins the life with a Node of a name.
func (c *Life) found(e Found) {
	if c.under != finding {
		return
	}
	c.under = none
	if c.phase != naming {
		return
	}
	if e.Err != nil {
		c.asked(e.Err)
		c.retryLater()
		return
	}
	if c.writer.failures > 0 {
		c.asked(nil)
	}
	c.writer.retry, c.writer.failures = time.Time{}, 0
	c.name, c.phase, c.server.began = e.Name, keeping, c.Now
	c.table = newTable(c.keys, c.o.Config, e.Name, c.heard, c.tell)
	c.Do(WatchNodes{name: e.Name, alone: c.o.Backend.Alone})
}

// turn does all that follows from what is known.
func (c *Life) turn() {
	c.Peers.Expire(c.Now)
	if due := c.changes.due(); !due.IsZero() && !c.Now.Before(due) {
		c.changes = changes{}
		c.observe(c.table.read())
	}
	if c.Source == keeper.SourceStore {
		c.judge()
	}
	if c.Source != keeper.SourceNone {
		c.publish()
	}
	c.Save(c.held, false)
	c.rest()
}

// rest is the end of a turn: what is asked of the API server, and when to be woken though nothing happens.
func (c *Life) rest() {
	c.probe()
	next, news := c.write()
	if news { // which is part of where we stand
		if c.Source == keeper.SourceStore {
			c.judge()
		}
		next, _ = c.write()
	}
	c.Wait(next, c.changes.due(), c.namesake.due(), c.probeDue())
}

// stop lets nothing begin any more.
func (c *Life) stop() {
	if c.phase == naming || c.phase == keeping {
		c.phase = stopping
	}
}

// end is what a stop has left to do: a last write, which does not wait for a save that is under way, since
// who stops us may not wait either; and to save the cache.
func (c *Life) end() {
	if !c.parted {
		c.parted = true
		if p, ok := c.farewell(); ok {
			c.under = parting
			c.Do(PatchNode{name: c.name, patch: p, last: true})
		}
		c.Save(c.held, true)
	}
	if c.under == none && !c.Saving() {
		c.phase = idle
	}
}

// retryLater sets when to ask the API server again after a failure.
func (c *Life) retryLater() {
	c.writer.failures++
	c.writer.retry = c.Now.Add(c.Backoff(c.writer.failures, c.pace.retryFirst, c.pace.retryMost))
}

// announced is what we publish of ourselves: what the daemon says, with an administrator's
// addresses instead of ours. Ours then are further sources, which peers on our side of a NAT see.
func (c *Life) announced() keeper.Local {
	l := c.Local.Signed(c.o.Node, c.o.State) // a copy
	for i, into := range [...]*netip.Addr{&l.Attrs.PublicIP, &l.Attrs.PublicIPv6} {
		given := c.overwrite[i]
		if !given.IsValid() || *into == given {
			continue
		}
		if into.IsValid() && !slices.Contains(l.Attrs.Weft.Addrs, *into) {
			l.Attrs.Weft.Addrs = append(l.Attrs.Weft.Addrs, *into)
		}
		*into = given
		if !slices.Contains(l.Underlay, given) {
			l.Underlay = append(l.Underlay, given)
		}
	}
	return l
}

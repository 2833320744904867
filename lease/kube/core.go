package kube

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

// longestSleep bounds a timer, because timers stand still while a machine sleeps.
const longestSleep = 5 * time.Minute

// core is the life of one node in a cluster, without a clock, an API server, a file, a goroutine or a lock:
// whoever has one tells it what has happened and does what it asks for. The same options, random
// numbers, times and events give the same effects. A Manager is a core with an API server. It is
// not safe for concurrent use.
//
// A step takes an event in, and then does all that follows from what is known, in a turn.
type core struct {
	o     Options // of which it uses what is no I/O; of Cache and Underlay only whether there is one
	keys  keys
	tells bool // the condition NetworkUnavailable is kept
	pace  pace
	rand  *rand.Rand

	now   time.Time // of this step
	out   []Effect  // of this step
	phase phase
	under request // what is asked of the API server; none for nothing

	local  lease.Local
	path   *dataPath // nil until the daemon has said how it is
	proven bool      // the configuration may be cached

	name      string        // of our Node
	ours      *corev1.Node  // trimmed; nil if it is not there
	view      view          // all Nodes, when they were last read
	changes   changes       // what came since then
	overwrite [2]netip.Addr // what an administrator has us publish instead
	server    serverFacts

	peers   lease.Outlook
	saver   lease.Saver
	saving  bool // its answer has not come
	unsaved bool // and there was something to be saved since
	source  source
	began   source         // what source was at the start
	once    []lease.Record // peers of an earlier set, whose Nodes still have their podCIDRs
	ownUID  string         // of our Node, when it was last seen

	tenure   tenure
	held     lease.Record // our own; its Subnets are zero while we have none
	namesake namesake
	waitsFor string // the Node that has our podCIDRs already; "" for none
	standing standing
	writer   writer
	parted   bool // the end has begun
}

// phase is what a core does.
type phase uint8

const (
	idle     phase = iota // before begin, and after the end
	naming                // asks for the name of our Node
	keeping               // watches, publishes and writes
	stopping              // was told to stop, and waits for an answer, or for that to its last write
)

// request is what a core has asked of the API server, beside the watch and the signs of life.
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

// source is what the peers that we go by are of.
type source uint8

const (
	sourceNone   source = iota // there are none
	sourceCache                // the last run's state: a set can be made, and nothing is saved
	sourceServer               // the API server has told us everything, since the start
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
	broken, concern, beat                time.Duration
}

// newCore returns a core that has done nothing yet. The random numbers are the core's from now on.
func newCore(k keys, tells bool, o Options, rng *rand.Rand, now time.Time) *core {
	c := &core{
		o: o, keys: k, tells: tells, rand: rng, now: now, proven: !o.Unproven,
		pace: pace{probe: probeAfter, answer: probeTimeout, retryFirst: time.Second, retryMost: time.Minute, broken: brokenFor, concern: concernFor, beat: beatLeast},
	}
	c.writer.limit = rate.NewLimiter(rate.Every(writeEvery), writeBurst)
	c.local = c.prepare(o.Local)
	c.standing.state = lease.Acquiring
	c.restore()
	return c
}

// restore takes up the cached state, if there is one of this node.
func (c *core) restore() {
	from := c.o.Cached
	if from == nil {
		return
	}
	c.o.Cached = nil // which is not needed any more once the API server was heard
	c.source, c.began = sourceCache, sourceCache
	mem := from.Memory.Expire(c.now)
	mem.Peers = slices.Clone(mem.Peers)
	for i := range mem.Peers {
		// The file is written when something changes, which may be long ago: a Node lasts
		// until it is deleted.
		if p := &mem.Peers[i]; !p.Held {
			p.Until = c.now.Add(lease.TTL)
		}
	}
	c.peers = lease.NewOutlook(mem)
	if from.Own.Subnets == (lease.Subnets{}) || from.Own.Node() != c.o.Node {
		return
	}
	c.held = from.Own
	if from.Own.Kube != nil {
		c.ownUID = from.Own.Kube.UID
	}
	c.standing.state, c.standing.own = lease.Unconfirmed, c.held.Subnets
}

// prepare returns a copy of l with our identity in it.
func (c *core) prepare(l lease.Local) lease.Local { return l.Signed(c.o.Node, c.o.State) }

// step takes in what has happened at now, which does not go back, and returns what is to be done.
func (c *core) step(now time.Time, e event) []Effect {
	c.now, c.out = now, nil
	if c.parted && c.phase == idle {
		return nil
	}
	switch e := e.(type) {
	case begin:
		c.begin()
	case news:
		c.accept(e)
	case found:
		c.found(e)
	case nodesRead:
		c.observe(e.view)
	case patched:
		c.patched(e)
	case probed:
		c.probed(e.err)
	case lease.Saved:
		c.saved(e)
		if c.phase == keeping {
			if c.unsaved {
				c.save(false)
			}
			c.rest() // what is saved is no reason to save
			return c.out
		}
	case stop:
		c.accept(e.last)
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
	return c.out
}

// do asks for an effect.
func (c *core) do(e Effect) { c.out = append(c.out, e) }

func (c *core) log(level slog.Level, message string, args ...any) {
	c.do(lease.Log{Level: level, Message: message, Args: args})
}

func (c *core) begin() {
	if c.phase != idle {
		return
	}
	c.phase = naming
	if c.source == sourceCache {
		c.publish()
	}
}

// accept takes news in.
func (c *core) accept(n news) {
	if n.heard.After(c.server.heard) {
		c.server.heard = n.heard
	}
	if n.own != nil {
		c.sight(*n.own)
	}
	if n.changed {
		c.changes.add(n.urgent, c.now)
	}
	if n.watch != nil {
		c.noteServer(&c.server.watchErr, n.watch.err)
	}
	if n.answer != nil {
		c.namesake.answered(*n.answer, c.now)
	}
	if n.local != nil {
		c.local = c.prepare(*n.local)
	}
	if n.path != nil {
		c.path = n.path
	}
	c.proven = c.proven || n.proven
}

// sight takes in what the watch says of our Node. The answer to our last write may be newer.
func (c *core) sight(s sighting) {
	if s.all || s.node == nil || !olderThan(s.node, c.ours) {
		c.ours = s.node
	}
}

// findName asks which Node is ours, until that is known.
func (c *core) findName() {
	if c.under == none && !c.now.Before(c.writer.retry) {
		c.under = finding
		c.do(FindNode{})
	}
	at := c.now.Add(longestSleep)
	if c.under == none {
		at = c.writer.retry
	}
	c.do(lease.Wait{Until: at})
}

// found begins the life with a Node of a name.
func (c *core) found(e found) {
	if c.under != finding {
		return
	}
	c.under = none
	if c.phase != naming {
		return
	}
	if e.err != nil {
		c.asked(e.err)
		c.retryLater()
		return
	}
	if c.writer.failures > 0 {
		c.asked(nil)
	}
	c.writer.retry, c.writer.failures = time.Time{}, 0
	c.name, c.phase, c.server.began = e.name, keeping, c.now
	c.do(WatchNodes{name: e.name, alone: c.o.Backend.Alone})
}

// turn does all that follows from what is known.
func (c *core) turn() {
	c.peers.Expire(c.now)
	if due := c.changes.due(); !due.IsZero() && !c.now.Before(due) {
		c.changes = changes{}
		c.do(readNodes{}) // whose answer is the next event, and goes on from here
		return
	}
	if c.source == sourceServer {
		c.judge()
	}
	if c.source != sourceNone {
		c.publish()
	}
	c.save(false)
	c.rest()
}

// rest is the end of a turn: what is asked of the API server, and when to be woken though nothing happens.
func (c *core) rest() {
	c.probe()
	next, news := c.write()
	if news { // which is part of where we stand
		if c.source == sourceServer {
			c.judge()
		}
		next, _ = c.write()
	}
	at := c.now.Add(longestSleep)
	for _, t := range []time.Time{next, c.changes.due(), c.peers.Memory().NextEnd(), c.saver.Due(), c.namesake.due(), c.probeDue()} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	c.do(lease.Wait{Until: at})
}

// save has the cache written if its time has come, or if this is the last chance.
func (c *core) save(last bool) {
	if c.source != sourceServer {
		return
	}
	if c.saving { // one at a time; what the next one is due for begins with it
		c.unsaved = true
		return
	}
	if !c.saver.Want(c.now, len(c.peers.Memory().Peers), c.held.Subnets) && !last && c.now.Before(c.saver.Due()) {
		return
	}
	if c.o.Cache == nil || !c.proven {
		c.saver.Skip()
		return
	}
	c.unsaved, c.saving = false, true
	c.saver.Begin(c.held.Subnets)
	c.do(lease.SaveCache{Cached: lease.Cached{Own: c.held, Memory: c.peers.Memory()}})
}

// saved notes what became of a save.
func (c *core) saved(e lease.Saved) {
	c.saving = false
	if c.saver.Done(c.now, e.Written, e.Err) {
		c.log(slog.LevelWarn, "the state was not cached; it is tried again", "cause", e.Err)
	}
}

// stop lets nothing begin any more.
func (c *core) stop() {
	if c.phase == naming || c.phase == keeping {
		c.phase = stopping
	}
}

// end is what a stop has left to do: a last write, which does not wait for a save that is under way, since who
// stops us may not wait either; to save the cache; and to say that both are done.
func (c *core) end() {
	if !c.parted {
		c.parted, c.unsaved = true, true
		if p, ok := c.farewell(); ok {
			c.under = parting
			c.do(PatchNode{name: c.name, patch: p, last: true})
		}
	}
	if c.unsaved && !c.saving {
		c.unsaved = false
		c.save(true)
	}
	if c.under == none && !c.saving {
		c.phase = idle
		c.do(Stopped{})
	}
}

// retryLater sets when to ask the API server again after a failure. The wait doubles, and is drawn
// from the upper half so that nodes do not march in step.
func (c *core) retryLater() {
	d := c.pace.retryMost
	if c.writer.failures < 16 {
		d = min(c.pace.retryFirst<<c.writer.failures, c.pace.retryMost)
	}
	c.writer.failures++
	c.writer.retry = c.now.Add(d/2 + c.draw(d/2+1))
}

// draw returns a duration from 0 to below d, which is positive.
func (c *core) draw(d time.Duration) time.Duration { return time.Duration(c.rand.Int64N(int64(d))) }

// announced is what we publish of ourselves: what the daemon says, with an administrator's
// addresses instead of ours. Ours then are further sources, which peers on our side of a NAT see.
func (c *core) announced() lease.Local {
	l := c.prepare(c.local)
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

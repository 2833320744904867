package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Cluster is a run of a Script.
type Cluster struct {
	script   Script
	rng      *rand.Rand
	now      time.Duration // true time, since the beginning
	queue    events
	seq      uint64
	machines []*machine
	cut      map[[2]int]time.Duration // links, by their ends, until when
	store    *store
	// the store is this, of which store has what an operator and the checks know; nil for etcd
	api      *apiServer
	addrs    int           // how many addresses there were
	planning bool          // what is planned now is of the script
	healed   bool          // nothing more goes wrong
	shaken   time.Duration // when the store last was not well
	flow     uint16        // the last one
	parsed   map[string]parsed

	history *strings.Builder // nil if nobody reads it
	steps   int
	seen    *Seen
	fault   *Fault
}

// Fault is what was wrong, and when.
type Fault struct {
	Script Script
	At     time.Duration
	Rule   string // which of the rules was broken
	What   string
	format string // of What: two faults with the same one are alike
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s: %s: %s\n%s", f.At, f.Rule, f.What, f.Script)
}

// event is what happens at a time. Of two at one time the one that was planned first comes first.
type event struct {
	at     time.Duration
	seq    uint64
	do     func()
	script bool // it is of the script, and not what came of it
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// at has do done at a time.
func (c *Cluster) at(when time.Duration, do func()) {
	c.seq++
	heap.Push(&c.queue, event{at: max(when, c.now), seq: c.seq, do: do, script: c.planning})
}

// after is a time a little later than now, drawn.
func (c *Cluster) after(least, most time.Duration) time.Duration {
	return c.now + least + time.Duration(c.rng.Int64N(int64(most-least)))
}

// log adds a line to the history.
func (c *Cluster) log(format string, a ...any) {
	if c.history != nil {
		fmt.Fprintf(c.history, "%16s  ", c.now)
		fmt.Fprintf(c.history, format, a...)
		c.history.WriteByte('\n')
	}
}

// fail notes the first thing that is wrong.
func (c *Cluster) fail(rule, format string, a ...any) {
	if c.fault == nil {
		c.fault = &Fault{c.script, c.now, rule, fmt.Sprintf(format, a...), format}
		c.log("FAULT %s: %s; the store has %s", rule, c.fault.What, c.describeStore())
	}
}

// Result is what became of a run.
type Result struct {
	Fault   *Fault // nil if all rules were kept
	History string
	Steps   int // of all cores
	Took    time.Duration
}

// Run plays a script. history says that the result is to have one line for each thing that happens, which
// takes several times as long. What came up is added to seen.
func Run(s Script, history bool, seen *Seen) Result {
	c := &Cluster{script: s, rng: rand.New(rand.NewPCG(s.Seed, 2)), cut: map[[2]int]time.Duration{},
		store: newStore([]byte(configs[s.Config])), seen: seen, parsed: map[string]parsed{}}
	if s.Kube {
		c.api = newAPIServer(s.Config)
	}
	c.seen.begin()
	if history {
		c.history = new(strings.Builder)
	}
	for range s.Machines {
		c.machine(fmt.Sprint("n", len(c.machines)), fmt.Sprint("s", len(c.machines)))
	}
	c.planning = true
	for _, o := range s.Ops {
		c.at(o.At, func() { c.happen(o) })
		c.at(o.At+500*time.Millisecond, c.traffic)
	}
	c.play(s.end() + time.Second)
	for _, m := range c.machines {
		c.unplane(m)
	}
	c.seen.Steps += c.steps
	r := Result{Fault: c.fault, Steps: c.steps, Took: c.now}
	if history {
		r.History = c.history.String()
	}
	return r
}

// play has everything happen, of which the script's part is over at a time.
func (c *Cluster) play(end time.Duration) {
	defer func() {
		if why := recover(); why != nil {
			c.fail("nothing panics", "%v: %s", why, debug.Stack())
		}
	}()
	c.until(c.finish(end))
}

// finish ends what is wrong at a time, and has it looked at what the cluster is afterwards. It returns when
// that is over.
func (c *Cluster) finish(at time.Duration) (end time.Duration) {
	c.planning = true
	defer func() { c.planning = false }()
	c.at(at, c.heal)
	if c.api != nil {
		return c.finishNodes(at)
	}
	for _, after := range [...]time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute, time.Hour,
		3 * time.Hour, 9 * time.Hour, bound} {
		c.at(at+after, func() { c.settled(after == bound) })
	}
	return at + bound
}

// bound is how long after the last fault all is as it should be at the latest: a record that nobody can ask
// for ends after a day.
const bound = 26 * time.Hour

// stepsEnough is when a run is healed early, and stepsMost is a storm.
const stepsEnough, stepsMost = 6_000, 300_000

func (c *Cluster) until(end time.Duration) {
	for len(c.queue) > 0 && c.fault == nil && c.queue[0].at <= end {
		e := heap.Pop(&c.queue).(event)
		c.now = e.at
		e.do()
		if c.steps > stepsEnough && !c.healed { // who quarrels for a day does nothing new
			c.queue = slices.DeleteFunc(c.queue, func(e event) bool { return e.script })
			heap.Init(&c.queue)
			end = c.finish(c.now)
		}
		if c.steps > stepsMost {
			c.fail("nothing grows", "%d steps", c.steps)
		}
	}
}

// addr is an address that nobody had.
func (c *Cluster) addr() netip.Addr {
	c.addrs++
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(c.addrs)})
}

func strangerAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + n)}) }

// linked reports whether two machines have a way to each other.
func (c *Cluster) linked(a, b *machine) bool {
	return c.now >= c.cut[[2]int{min(a.index, b.index), max(a.index, b.index)}] && !a.unplugged(c.now) &&
		!b.unplugged(c.now)
}

// happen does one operation of the script.
func (c *Cluster) happen(o Op) {
	if o.Machine >= len(c.machines) || o.Other >= len(c.machines) {
		return
	}
	m := c.machines[o.Machine]
	c.seen.Kinds[o.Do]++
	c.growth(m)
	c.log("%s", strings.TrimSpace(o.String()))
	until := c.now + o.For
	switch o.Do {
	case Start:
		c.start(m)
	case Stop:
		c.stop(m)
	case Kill:
		c.kill(m)
	case Clone:
		c.clone(m, o.N%2 == 1)
	case CutStore:
		m.cutOff = max(m.cutOff, until)
		c.cutStore(m)
	case CutLink:
		if m.index != o.Other {
			c.cut[[2]int{min(m.index, o.Other), max(m.index, o.Other)}] = until
		}
		m.disturb(until)
		c.machines[o.Other].disturb(until)
	case Unplug:
		m.away = max(m.away, until)
		c.cutStore(m)
	case Suspend:
		c.suspend(m, until, o.N%2 == 1)
	case Clock:
		m.offset += o.For
		m.jump, m.jumped = o.For, c.now
		// a round of asking ends at once, which it does not on the monotonic clock of a real process
		m.disturb(c.now)
		c.came(ToWake, m)
	case Address:
		c.readdress(m, o.N%2 == 1)
	case StoreDown:
		c.store.down = true
		c.shake(until)
		c.breakWatches()
		c.at(until, func() { c.store.down = false; c.breakWatches() })
	case ReadOnly:
		c.store.readOnly = true
		c.shake(until)
		c.at(until, func() { c.store.readOnly = false })
	case Slow:
		m.lag, m.lagUntil = time.Duration(o.N)*time.Millisecond, until
		m.disturb(until + m.lag)
	case Compact:
		c.operate(o, m)
	case LoseReplies:
		m.lose = 1 + o.N
		m.disturb(c.now)
	case Late:
		m.late = 1 + o.N
		m.disturb(c.now)
	case DiskFull:
		m.full = until
	case Config:
		c.came(ToReconfigure, m)
		c.operate(o, m)
	case Delete:
		c.came(ToRelease, m)
		c.operate(o, m)
	case Wipe, Restore, ConfigGone:
		c.shake(until)
		c.operate(o, m)
	case Backup, Scribble, Reserve, Stranger, Recidr, Touch, Conflict:
		c.operate(o, m)
	default: // of a script that somebody wrote
	}
}

// shake notes that the store is not well until a time.
func (c *Cluster) shake(until time.Duration) { c.shaken = max(c.shaken, until, c.now) }

package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/kube"
	"weft/routing"
	"weft/routing/underlay"
)

// machine is a host with its disk, its clock and its addresses, and a weftd that runs on it or does not.
type machine struct {
	index        int
	node, state  string // identity, and the name of the state directory
	addr         netip.Addr
	addr6        netip.Addr
	offset       time.Duration // of its clock from true time
	jump, jumped time.Duration // by how much its clock was set forward last, and when
	gone         bool          // for good
	cutOff, away time.Duration // no way to the store, and to anybody, until then
	asleep       time.Duration // it stands still until then
	stands       time.Duration // when its clock stopped, which stands still with it; negative for never
	lag          time.Duration // of what the store's watch tells, until lagUntil
	lagUntil     time.Duration
	lose, late   int
	full         time.Duration // no room on the disk until then
	disturbed    time.Duration // until when something was wrong with it or with its ways
	disk         disk
	process      *process // nil while weftd does not run
	plane        *plane   // nil while weftd does not run, or has no subnet
	starts       int
	known        map[lease.Subnets][]time.Time // when the records end that it was told of, by its clock
	// since when it says that it holds what is another's; negative for never
	wrong       time.Duration
	set         lease.Set // the last one of this core
	hour, calls int       // what it asked the store for in an hour
	tells       int       // and of which Events
	// how often it wrote over the word of another that lives, since overSince
	overs     int
	overSince time.Duration
	// when it last heard of the store, and before the last time that it did not for long
	heard, gap time.Duration
}

// disk is what outlives a process.
type disk struct {
	cached   *belief.Cached
	previous lease.Subnets // of subnet.env

	unsaved bool          // it was full at the last save,
	since   time.Duration // and at all from this time on: what is on it is that old
}

// save writes the state, and reports whether it is another one than what is there, as belief.Cache does.
func (d *disk) save(s belief.Cached) (written bool) {
	same := func(a, b belief.Remembered) bool {
		return a.Record == b.Record || a.Subnets == b.Subnets && a.Revision == b.Revision
	}
	if was := d.cached; was != nil && was.Own.Subnets == s.Own.Subnets && was.Own.Revision == s.Own.Revision &&
		was.Memory.ClusterID == s.Memory.ClusterID && was.Memory.Revision == s.Memory.Revision &&
		was.Memory.Why == s.Memory.Why && slices.EqualFunc(was.Memory.Peers, s.Memory.Peers, same) {
		return false
	}
	d.cached = &s
	return true
}

// mind is a keeper.Core or a kube.Life.
type mind interface {
	Step(time.Time, keeper.Event) []keeper.Effect
	Status(time.Time) lease.Status
}

// process is a weftd. What is meant for one that is gone does not reach the next.
type process struct {
	core    mind       // nil until the configuration is known
	life    *kube.Life // the same, where the store is the Kubernetes API; else nil
	follow  *follow    // its watch of Nodes
	heardOf int64      // the version up to which it has heard
	config  routing.Network
	raw     []byte
	proven  bool   // the configuration is in place, with a lease
	settled bool   // its configuration was the store's once
	calls   uint64 // the number of the call that it waits for; 0 for none
	wait    uint64 // the number of its last Wait
	tells   string // what its Listen is for
	watch   *watch
	began   time.Duration
	asking  bool // of the API server
}

// watch is a stream of a process from a member of the store.
type watch struct {
	last   time.Duration // when the latest of what is under way arrives
	listed int64         // the revision after which it knows when leases end
}

// machine adds one to the cluster.
func (c *Cluster) machine(node, state string) *machine {
	m := &machine{index: len(c.machines), node: node, state: state, stands: -1, wrong: -1,
		known: map[lease.Subnets][]time.Time{}}
	m.offset = time.Duration(c.rng.Int64N(int64(time.Minute)))
	c.move(m, c.addr())
	c.machines = append(c.machines, m)
	return m
}

func (c *Cluster) move(m *machine, a netip.Addr) {
	m.addr = a
	b := a.As4()
	m.addr6 = netip.AddrFrom16([16]byte{0xfd, 0, 0x19, 0x20, 15: b[3]})
}

// epoch is what clocks that are right say at the beginning.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// clock is what the machine's clock says at a true time.
func (m *machine) clock(now time.Duration) time.Time {
	if m.stands >= 0 {
		now = m.stands
	}
	return epoch().Add(now + m.offset)
}

func (m *machine) unplugged(now time.Duration) bool { return now < m.away }

// reaches reports whether the machine reaches the store.
func (c *Cluster) reaches(m *machine) bool {
	return !c.store.down && c.now >= m.cutOff && !m.unplugged(c.now)
}

// disturb notes that something is wrong with the machine until a time.
func (m *machine) disturb(until time.Duration) { m.disturbed = max(m.disturbed, until) }

// calm is how long nothing may have been wrong with those who are to hear each other, before a rule counts on
// it.
const calm = 30 * time.Second

// well reports whether the machine has heard and was heard for long enough.
func (c *Cluster) well(m *machine) bool {
	return m.process != nil && c.now >= m.disturbed+calm && c.now >= c.shaken+calm &&
		c.now >= m.process.began+calm
}

func (m *machine) listens(node string) bool { return m.process != nil && m.process.tells == node }

// link is the underlay's interface.
func (m *machine) link() underlay.Link {
	return underlay.Link{Name: "eth0", Index: 2, MTU: 1500, Addr4: m.addr, Ext4: m.addr}
}

// local is what a node says of itself in a network.
func (m *machine) local(config routing.Network) keeper.Local {
	l := keeper.Local{Attrs: lease.Attrs{PublicIP: m.addr,
		Weft: &lease.Weft{MTU: 1472, Recv: []string{"gso"}, Name: fmt.Sprint("m", m.index)}}}
	l.Underlay = []netip.Addr{m.addr}
	if config.EnableIPv6 {
		l.Attrs.PublicIPv6 = m.addr6
		l.Underlay = append(l.Underlay, m.addr6)
	}
	if p, err := routing.NewPlanner(config, m.link(), m.node); err == nil {
		l.Attrs.BackendType, l.Attrs.BackendData, l.Attrs.BackendV6Data = p.Publish()
	}
	return l
}

// asked is an underlay in name: a core asks for it, and never calls it.
type asked struct{ keeper.Underlay }

// start begins a process. Without a saved state it waits until the store says what the network is.
func (c *Cluster) start(m *machine) {
	if m.process != nil || m.gone {
		return
	}
	if c.now < m.asleep {
		c.at(m.asleep, func() { c.start(m) })
		return
	}
	m.starts++
	c.came(ToAcquire, m)
	p := &process{began: c.now}
	m.process = p
	m.disturb(c.now)
	if m.disk.unsaved {
		m.heard = min(m.heard, m.disk.since) // it knows what its disk does
		m.gap = min(m.gap, m.heard)
	}
	if c.api != nil {
		c.startLife(m, p)
		return
	}
	if saved := m.disk.cached; saved != nil {
		if config, err := c.parse(saved.Memory.Config); err == nil {
			c.serveConfig(m, p, config, saved.Memory.Config, saved)
			return
		}
	}
	c.awaitConfig(m, p)
}

// awaitConfig asks the store for a configuration until there is one.
func (c *Cluster) awaitConfig(m *machine, p *process) {
	if m.process != p {
		return
	}
	if c.now >= m.asleep && c.reaches(m) {
		raw := c.store.now.config
		if config, err := c.parse(raw); raw != nil && err == nil {
			c.serveConfig(m, p, config, raw, nil)
			return
		}
	}
	c.at(c.after(100*time.Millisecond, 2*time.Second), func() { c.awaitConfig(m, p) })
}

// serveConfig begins to serve a network: at the start of a process, and when it takes another one up.
func (c *Cluster) serveConfig(m *machine, p *process, config routing.Network, raw []byte,
	saved *belief.Cached) {
	name := fmt.Sprintf("m%d-%d-%d", m.index, m.starts, c.seq)
	core, err := keeper.NewCore(keeper.Options{
		Node: m.node, State: m.state, Underlay: asked{}, Config: config.NetworkConfig, RawConfig: raw,
		CheckConfig: c.parseConfig, Unproven: saved == nil,
		Local: m.local(config), Previous: m.disk.previous, Cache: new(belief.Cache), Cached: saved,
		Rand: rand.New(rand.NewPCG(c.rng.Uint64(), 3)),
	}, name, m.clock(c.now))
	if err != nil {
		c.fail("a core is made", "m%d: %v", m.index, err)
		return
	}
	p.core, p.config, p.raw, p.settled, p.proven = core, config, raw, false, false
	m.set = lease.Set{}
	c.unplane(m)
	p.calls, p.watch = 0, nil
	c.step(m, p, keeper.Begin{})
}

// stop has the process end as one that is told to.
func (c *Cluster) stop(m *machine) {
	p := m.process
	if p == nil || c.now < m.asleep {
		return
	}
	if p.core != nil {
		c.step(m, p, keeper.Stop{})
		if p.calls != 0 {
			c.step(m, p, keeper.Result{Number: p.calls, Err: errStopped})
		}
	}
	c.kill(m)
}

func (c *Cluster) kill(m *machine) {
	c.unplane(m)
	m.process = nil
	m.wrong = -1
	m.disturb(c.now)
}

// clone starts a copy of a machine, disk and all, at an address of its own.
func (c *Cluster) clone(m *machine, sameState bool) {
	if len(c.machines) >= mostMachines {
		return
	}
	state := m.state
	if !sameState {
		state = fmt.Sprint("s", len(c.machines))
	}
	n := c.machine(m.node, state)
	n.disk, n.offset = m.disk, m.offset
	for s, ends := range m.known {
		n.known[s] = slices.Clone(ends)
	}
	c.came(ToClone, n)
	c.start(n)
}

// suspend has the machine stand still.
func (c *Cluster) suspend(m *machine, until time.Duration, clock bool) {
	if c.now < m.asleep || until <= c.now {
		return
	}
	m.asleep = until
	m.disturb(until)
	if clock {
		m.stands = c.now
	}
	c.at(until, func() {
		c.wake(m)
		c.came(ToWake, m)
		c.lost(m)
	})
}

// wake lets the machine's clock go on, if it stood still.
func (c *Cluster) wake(m *machine) {
	if m.stands >= 0 {
		m.offset -= c.now - m.stands
		m.stands = -1
	}
}

// readdress gives the machine another address: one that nobody had, or that of a machine that is off.
func (c *Cluster) readdress(m *machine, used bool) {
	a := c.addr()
	if used {
		for _, o := range c.machines {
			if o.process == nil && o != m && o.addr.IsValid() {
				a = o.addr
				c.move(o, c.addr())
				break
			}
		}
	}
	c.move(m, a)
	m.disturb(c.now)
	c.came(ToMove, m)
	if p := m.process; p != nil && p.core != nil {
		core := p.core
		c.at(c.after(0, 3*time.Second), func() {
			local := m.local(p.config) // as it is then
			c.arrive(m, p, core, keeper.News{Local: &local})
		})
	}
}

// cutStore has the machine notice that the store does not answer.
func (c *Cluster) cutStore(m *machine) {
	m.disturb(max(m.cutOff, m.away))
	c.came(ToCutOff, m)
	c.lost(m)
}

package sim

import (
	"errors"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/kube"
)

// deliver hands an event to a process at a time, or when its machine wakes up.
func (c *Cluster) deliver(m *machine, p *process, at time.Duration, e keeper.Event) {
	core := p.core
	c.at(at, func() { c.arrive(m, p, core, e) })
}

func (c *Cluster) arrive(m *machine, p *process, core mind, e keeper.Event) {
	switch {
	case m.process != p || p.core != core:
	case c.now < m.asleep:
		c.at(m.asleep, func() { c.arrive(m, p, core, e) })
	default:
		c.step(m, p, e)
	}
}

// step hands an event to the core, and does what it asks for.
func (c *Cluster) step(m *machine, p *process, e keeper.Event) {
	for queue := []keeper.Event{e}; len(queue) > 0 && c.fault == nil; queue = queue[1:] {
		c.steps++
		e := queue[0]
		switch r := e.(type) {
		case keeper.Result:
			if r.Number == p.calls {
				p.calls = 0
			}
		case kube.Found, kube.Patched:
			p.asking = false
		}
		c.told(m, e)
		now := m.clock(c.now)
		effects := p.core.Step(now, e)
		if c.history != nil {
			c.log("m%d %s -> %s", m.index, describeEvent(e), describeEffects(effects, now))
		}
		for _, f := range effects {
			switch f := f.(type) {
			case keeper.Listen:
				p.tells = f.Node
				c.readMail(m)
			case keeper.Watch:
				c.watch(m, p)
			case keeper.Call:
				p.calls = f.Number
				c.call(m, p, f)
			case keeper.AskUnderlay:
				c.askUnderlay(m, p, f)
			case keeper.SaveCache:
				saved := keeper.Saved{Err: errors.New("the disk is full")}
				if c.now >= m.full {
					saved = keeper.Saved{Written: m.disk.save(f.Cached)}
					m.disk.unsaved = false
				} else if !m.disk.unsaved {
					m.disk.unsaved, m.disk.since = true, c.now
				}
				c.deliver(m, p, c.after(time.Millisecond, 100*time.Millisecond), saved)
			case keeper.Publish:
				c.published(m, p, f.Set)
				if p.life != nil && f.Set.Own.Subnets != (lease.Subnets{}) {
					c.deliver(m, p, c.after(10*time.Millisecond, 500*time.Millisecond), kube.DataPath{})
				}
			case keeper.Wait:
				c.wait(m, p, f.Until.Sub(now))
			case keeper.Log:
			case kube.FindNode:
				c.request(m, p)
				found, at := kube.Found{Name: m.node}, c.after(time.Millisecond, 80*time.Millisecond)
				if !c.reaches(m) {
					found, at = kube.Found{Err: errDown}, c.now+10*time.Second
				}
				c.deliver(m, p, at, found)
			case kube.WatchNodes:
				c.listNodes(m, p, c.after(time.Millisecond, 40*time.Millisecond))
			case kube.PatchNode:
				c.patch(m, p, f)
			case kube.ProbeServer:
				probed, at := kube.Probed{}, c.after(2*time.Millisecond, 80*time.Millisecond)
				if !c.reaches(m) {
					probed, at = kube.Probed{Err: errDown}, c.now+5*time.Second
				}
				c.deliver(m, p, at, probed)
			case kube.Tell:
				c.countAsked(m, &m.tells, tellsMost, "Events")
			default:
				c.fail("an effect is known", "m%d: %T", m.index, f)
			}
		}
	}
	switch {
	case c.fault != nil:
	case p.life != nil:
		c.lookLife(m, p)
	default:
		c.look(m, p)
	}
}

// wait has the process woken after a while by its timer, which stands still while the machine does.
func (c *Cluster) wait(m *machine, p *process, d time.Duration) {
	p.wait++
	mine, core := p.wait, p.core
	c.at(c.now+max(d, 0), func() {
		if p.wait == mine {
			c.arrive(m, p, core, keeper.Tick{})
		}
	})
}

// call does one request to the store: it goes there and back, and may be lost on both ways.
func (c *Cluster) call(m *machine, p *process, f keeper.Call) {
	core := p.core
	answer := func(at time.Duration, r keeper.Result) {
		r.Number = f.Number
		c.deliver(m, p, at, r)
	}
	if !c.reaches(m) {
		wait := 10 * time.Second // it waits for an answer, or there is nobody at once
		if c.rng.IntN(2) == 0 {
			wait = 50 * time.Millisecond
		}
		answer(c.now+wait, keeper.Result{Err: errDown})
		return
	}
	there := c.after(time.Millisecond, 40*time.Millisecond)
	late := m.late > 0
	if late {
		m.late--
		m.disturb(c.now + 13*time.Second)
		there = c.after(10*time.Second, 13*time.Second)
		answer(c.now+10*time.Second, keeper.Result{Err: errTimeout})
	}
	c.at(there, func() {
		if late && c.healed { // that comes too late too
			return
		}
		if !c.reaches(m) {
			if there < c.now+10*time.Second {
				answer(c.now+10*time.Second, keeper.Result{Err: errDown})
			}
			return
		}
		if m.process != p || p.core != core {
			if _, reads := f.Operation.(keeper.ReadStore); reads {
				return
			}
		}
		c.writer(m, f.Operation)
		r := c.serve(m, f.Operation)
		if _, reads := f.Operation.(keeper.ReadStore); !reads {
			c.log("store: m%d %s: %v %v", m.index, describeOperation(f.Operation), r.Revision, r.Err)
		}
		back := c.after(time.Millisecond, 40*time.Millisecond)
		if m.lose > 0 {
			m.lose--
			m.disturb(c.now + 10*time.Second)
			back, r = c.now+10*time.Second, keeper.Result{Err: errTimeout}
		}
		answer(back, r)
	})
}

// askUnderlay sends echo requests to the addresses of a record: the kernel of whoever has them answers.
func (c *Cluster) askUnderlay(m *machine, p *process, f keeper.AskUnderlay) {
	at, yes := c.now+1500*time.Millisecond, false
	for _, o := range c.machines {
		if o != m && !o.gone && (o.addr == f.Attrs.PublicIP || o.addr6 == f.Attrs.PublicIPv6) &&
			c.now >= o.asleep && c.linked(m, o) && o.process != nil {
			at, yes = c.after(time.Millisecond, time.Second), true
		}
	}
	switch {
	case p.life != nil:
		c.deliver(m, p, at, kube.Answered{Round: f.Round, Yes: yes})
	case yes:
		c.deliver(m, p, at, keeper.News{Answered: f.Round})
	}
}

// watch begins a stream of what the store has.
func (c *Cluster) watch(m *machine, p *process) {
	p.watch = &watch{}
	c.list(m, p, c.after(time.Millisecond, 100*time.Millisecond))
}

// list has the stream begin anew: what was under way does not arrive.
func (c *Cluster) list(m *machine, p *process, at time.Duration) {
	w := &watch{last: at}
	p.watch = w
	core := p.core
	c.at(at, func() {
		switch {
		case m.process != p || p.core != core || p.watch != w:
		case !c.reaches(m):
			c.lostStream(m, p)
		default:
			c.sweep()
			w.listed = c.store.now.revision
			s := c.snapshot(m, c.store.now, w.listed)
			c.arrive(m, p, core, keeper.News{Snapshot: &s, Watched: true})
			c.at(c.after(relist, 2*relist), func() {
				if m.process == p && p.core == core && p.watch == w {
					c.list(m, p, max(c.now, w.last))
				}
			})
		}
	})
}

// relist is the least time between two lists of a stream that nothing breaks.
const relist = 30 * time.Minute

// lost tells a machine's process, if there is one, that its watch is broken.
func (c *Cluster) lost(m *machine) {
	switch p := m.process; {
	case p == nil || p.core == nil:
	case p.life != nil:
		c.lostNodes(m, p)
	default:
		c.lostStream(m, p)
	}
}

// lostStream tells a process that its stream is broken, and has another one begin.
func (c *Cluster) lostStream(m *machine, p *process) {
	if p.watch == nil {
		return
	}
	again := c.after(500*time.Millisecond, 3*time.Second)
	if !c.reaches(m) {
		c.deliver(m, p, c.after(10*time.Millisecond, 400*time.Millisecond),
			keeper.News{Lost: errDown, Watched: true})
		again = max(again, m.cutOff, m.away)
		if c.store.down {
			again = max(again, c.after(time.Second, time.Minute))
		}
	}
	c.list(m, p, again)
	c.at(again, func() { c.readMail(m) })
}

// breakWatches breaks all streams: their history is gone, or the store is another one.
func (c *Cluster) breakWatches() {
	for _, m := range c.machines {
		if p := m.process; p != nil && p.core != nil {
			m.disturb(c.now)
			c.lost(m)
		}
	}
}

// changed tells all streams what the store has now, each when its member has it.
func (c *Cluster) changed() {
	i := c.store.now
	c.log("store: %s", lazily(func() string { return describe(i) }))
	for _, m := range c.machines {
		p := m.process
		if p == nil || p.core == nil || p.watch == nil || !c.reaches(m) {
			continue
		}
		w, core := p.watch, p.core
		at := c.after(5*time.Millisecond, 150*time.Millisecond)
		if c.now < m.lagUntil {
			at += m.lag
		}
		w.last = max(w.last, at)
		c.at(w.last, func() {
			if m.process != p || p.core != core || p.watch != w {
				return
			}
			if !c.reaches(m) {
				c.lostStream(m, p)
				return
			}
			s := c.snapshot(m, i, w.listed)
			c.arrive(m, p, core, keeper.News{Snapshot: &s, Watched: true})
		})
	}
}

// deliverMail tells a machine of a message.
func (c *Cluster) deliverMail(m *machine, l lease.Message) {
	if p := m.process; p != nil && p.core != nil && c.reaches(m) {
		at := c.after(2*time.Millisecond, 100*time.Millisecond)
		if c.now < m.lagUntil {
			at += m.lag
		}
		c.deliver(m, p, at, keeper.News{Messages: []lease.Message{l}})
	}
}

// readMail tells a machine of what lies in the store for it.
func (c *Cluster) readMail(m *machine) {
	if p := m.process; p != nil && c.reaches(m) {
		for _, l := range c.store.mail {
			if l.To == p.tells && c.now < l.ends {
				c.deliverMail(m, l.Message)
			}
		}
	}
}

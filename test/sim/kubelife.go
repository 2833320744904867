package sim

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"weft/lease"
	"weft/lease/kube"
)

// follow is a watch of Nodes.
type follow struct {
	version int64         // up to which everything was heard
	last    time.Duration // when the latest of what is under way arrives
}

// startLife begins a life with what is saved, in the network of the ConfigMap.
func (c *Cluster) startLife(m *machine, p *process) {
	raw := c.script.configuration(c.api.config)
	config, err := c.parse(raw)
	if err != nil {
		c.fail("a life is made", "m%d: %v", m.index, err)
		return
	}
	facts := config.Facts()
	saved := m.disk.cached
	if saved != nil && string(saved.Memory.Config) != string(raw) {
		saved = nil
	}
	if saved != nil {
		for _, r := range saved.Memory.Peers {
			m.knows(r.Subnets, m.clock(c.now).Add(lease.TTL))
		}
	}
	p.config, p.raw = config, raw
	p.life, err = kube.NewLife("", true, kube.Options{
		Node: m.node, State: m.state, Underlay: asked{}, Config: config.NetworkConfig, RawConfig: raw, Unproven: saved == nil,
		Backend: kube.Backend{Alone: facts.Alone, DataV4: facts.DataV4, DataV6: facts.DataV6},
		Local:   m.local(config), Cache: new(lease.Cache), Cached: saved,
	}, rand.New(rand.NewPCG(c.rng.Uint64(), 3)), m.clock(c.now))
	if err != nil {
		c.fail("a life is made", "m%d: %v", m.index, err)
		return
	}
	m.set = lease.Set{}
	c.unplane(m)
	c.register(m)
	c.live(m, p, "begin", (*kube.Life).Begin)
}

// live tells a life of something, unless its process is gone, and does what it asks for. While its machine stands still it is not told.
func (c *Cluster) live(m *machine, p *process, what string, tell func(*kube.Life, time.Time) []kube.Effect) {
	switch {
	case m.process != p || c.fault != nil:
		return
	case c.now < m.asleep:
		c.at(m.asleep, func() { c.live(m, p, what, tell) })
		return
	}
	c.steps++
	now := m.clock(c.now)
	effects := tell(p.life, now)
	if c.history != nil {
		c.log("m%d %s -> %s", m.index, what, describeEffects(effects, now))
	}
	for _, f := range effects {
		c.perform(m, p, f, now)
	}
	if c.fault == nil {
		c.lookLife(m, p)
	}
}

// later is live at a time.
func (c *Cluster) later(m *machine, p *process, at time.Duration, what string, tell func(*kube.Life, time.Time) []kube.Effect) {
	c.at(at, func() { c.live(m, p, what, tell) })
}

func (c *Cluster) perform(m *machine, p *process, f kube.Effect, now time.Time) {
	switch f := f.(type) {
	case kube.FindNode:
		c.request(m, p)
		if !c.reaches(m) {
			c.later(m, p, c.now+10*time.Second, "not found", func(l *kube.Life, t time.Time) []kube.Effect { p.asking = false; return l.Found(t, "", errDown) })
			return
		}
		c.later(m, p, c.after(time.Millisecond, 80*time.Millisecond), "found", func(l *kube.Life, t time.Time) []kube.Effect { p.asking = false; return l.Found(t, m.node, nil) })
	case kube.WatchNodes:
		c.listNodes(m, p, c.after(time.Millisecond, 40*time.Millisecond))
	case kube.PatchNode:
		c.patch(m, p, f)
	case kube.ProbeServer:
		if c.reaches(m) {
			c.later(m, p, c.after(2*time.Millisecond, 80*time.Millisecond), "alive", func(l *kube.Life, t time.Time) []kube.Effect { return l.Probed(t, nil) })
			return
		}
		c.later(m, p, c.now+5*time.Second, "silent", func(l *kube.Life, t time.Time) []kube.Effect { return l.Probed(t, errDown) })
	case kube.Tell:
		c.countAsked(m, &m.tells, tellsMost, "Events")
	case lease.AskUnderlay:
		c.askOthers(m, p, f)
	case lease.SaveCache:
		saved := lease.Saved{Err: errors.New("the disk is full")}
		if c.now >= m.full {
			saved = lease.Saved{Written: m.disk.save(f.Cached)}
		}
		c.later(m, p, c.after(time.Millisecond, 100*time.Millisecond), "saved", func(l *kube.Life, t time.Time) []kube.Effect { return l.Saved(t, saved) })
	case lease.Publish:
		c.published(m, p, f.Set)
		if f.Set.Own.Subnets != (lease.Subnets{}) {
			c.later(m, p, c.after(10*time.Millisecond, 500*time.Millisecond), "packets flow", func(l *kube.Life, t time.Time) []kube.Effect { return l.DataPath(t, "", "", "") })
		}
	case lease.Wait:
		p.wait++
		mine := p.wait
		c.at(c.now+max(f.Until.Sub(now), 0), func() {
			if p.wait == mine {
				c.live(m, p, "tick", (*kube.Life).Tick)
			}
		})
	case lease.Log:
	default:
		c.fail("an effect is known", "m%d: %T", m.index, f)
	}
}

// request checks that a life asks the API server for one thing at a time.
func (c *Cluster) request(m *machine, p *process) {
	if p.asking {
		c.fail("one request at a time", "m%d", m.index)
	}
	p.asking = true
}

// patch does one write to our Node: it goes there and back, and may be lost on both ways.
func (c *Cluster) patch(m *machine, p *process, f kube.PatchNode) {
	c.claims(m, f)
	c.request(m, p)
	answer := func(at time.Duration, n *kube.Object, err error) {
		c.later(m, p, at, "patched", func(l *kube.Life, t time.Time) []kube.Effect { p.asking = false; return l.Patched(t, n, err) })
	}
	if !c.reaches(m) {
		answer(c.after(50*time.Millisecond, 10*time.Second), nil, errDown)
		return
	}
	there := c.after(time.Millisecond, 40*time.Millisecond)
	late := m.late > 0
	if late {
		m.late--
		m.disturb(c.now + 13*time.Second)
		there = c.after(10*time.Second, 13*time.Second)
		answer(c.now+10*time.Second, nil, errTimeout)
	}
	c.at(there, func() {
		if late && c.healed { // that comes too late too
			return
		}
		back := c.after(time.Millisecond, 40*time.Millisecond)
		if !c.reaches(m) {
			if !late {
				answer(c.now+10*time.Second, nil, errDown)
			}
			return
		}
		c.countAsked(m, &m.calls, patchesMost, "patches")
		n, err := c.patchAtServer(m, f)
		c.log("nodes: m%d patches %s: %s: %v", m.index, f.Node(), f.Body(), err)
		if m.lose > 0 {
			m.lose--
			m.disturb(c.now + 10*time.Second)
			back, n, err = c.now+10*time.Second, nil, errTimeout
		}
		if !late {
			answer(back, n, err)
		}
	})
}

func (c *Cluster) patchAtServer(m *machine, f kube.PatchNode) (*kube.Object, error) {
	a, resource := c.api, schema.GroupResource{Resource: "nodes"}
	was := a.now.find(f.Node())
	switch {
	case c.store.readOnly:
		return nil, apierrors.NewInternalError(errReadOnly)
	case was == nil:
		return nil, apierrors.NewNotFound(resource, f.Node())
	case a.conflicts > 0:
		a.conflicts--
		return nil, apierrors.NewConflict(resource, f.Node(), errors.New("the object has been modified"))
	}
	n, err := patchNode(was.Object, f.Body())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	author := was.author
	if n.Annotations[weftKey] != was.Annotations[weftKey] || n.Annotations[publicIP] != was.Annotations[publicIP] {
		author = m.index
	}
	c.writtenNode(m, was, n)
	return c.writeNode(n, author), nil
}

// askOthers sends echo requests to the addresses that a Node says: the kernel of whoever has them answers.
func (c *Cluster) askOthers(m *machine, p *process, f lease.AskUnderlay) {
	at, yes := c.now+1500*time.Millisecond, false
	for _, o := range c.machines {
		if o != m && !o.gone && (o.addr == f.Attrs.PublicIP || o.addr6 == f.Attrs.PublicIPv6) && c.now >= o.asleep && c.linked(m, o) && o.process != nil {
			at, yes = c.after(time.Millisecond, time.Second), true
		}
	}
	what := "nobody answers"
	if yes {
		what = "somebody answers"
	}
	c.later(m, p, at, what, func(l *kube.Life, t time.Time) []kube.Effect { return l.Answered(t, f.Round, yes) })
}

// hear has a watch tell a process something that it knows up to a version, in its turn; unless the watch has ended, or ends by it.
func (c *Cluster) hear(m *machine, p *process, w *follow, version int64, what string, tell func(*kube.Life, time.Time) []kube.Effect) {
	switch {
	case m.process != p || p.follow != w:
	case c.now < m.asleep:
		c.at(m.asleep, func() { c.hear(m, p, w, version, what, tell) })
	case !c.reaches(m):
		c.lostNodes(m, p)
	default:
		p.heardOf = version
		if c.now > m.heard+time.Minute {
			m.gap = m.heard
		}
		m.heard = c.now
		c.live(m, p, what, tell)
	}
}

// arriving is when what a watch says now arrives, after all that it said before.
func (c *Cluster) arriving(m *machine, w *follow) time.Duration {
	at := c.after(5*time.Millisecond, 150*time.Millisecond)
	if c.now < m.lagUntil {
		at += m.lag
	}
	w.last = max(w.last, at)
	return w.last
}

// listNodes has the watch begin anew with everything: what was under way does not arrive.
func (c *Cluster) listNodes(m *machine, p *process, at time.Duration) {
	w := &follow{}
	p.follow = w
	c.at(at, func() {
		switch {
		case m.process != p || p.follow != w:
			return
		case !c.reaches(m):
			c.lostNodes(m, p)
			return
		}
		i, version := c.api.now, strconv.FormatInt(c.api.now.version, 10)
		c.at(c.arriving(m, w), func() {
			c.hear(m, p, w, i.version, "list "+version, func(l *kube.Life, t time.Time) []kube.Effect {
				list := make([]*kube.Object, len(i.all))
				for k, o := range i.all {
					list[k] = o.Object
					c.toldNode(m, o.Object)
				}
				return l.Listed(t, list, version)
			})
			c.hear(m, p, w, i.version, "watch", func(l *kube.Life, t time.Time) []kube.Effect { return l.Watches(t, nil) })
		})
		c.goOn(m, p, w, i.version)
	})
}

// relistNodes is how long a watch is trusted in a small cluster.
const relistNodes = 10 * time.Minute

// goOn has a watch told what comes after a version.
func (c *Cluster) goOn(m *machine, p *process, w *follow, version int64) {
	w.version = version
	for _, how := range c.api.history {
		c.tellWatch(m, p, w, how)
	}
	c.bookmark(m, p, w)
	c.at(c.after(relistNodes, relistNodes*3/2), func() {
		if m.process == p && p.follow == w {
			c.listNodes(m, p, max(c.now, w.last))
		}
	})
}

// bookmark has a watch told every minute how far it has come.
func (c *Cluster) bookmark(m *machine, p *process, w *follow) {
	c.at(c.now+time.Minute, func() {
		if m.process != p || p.follow != w {
			return
		}
		if v := c.api.now.version; v >= w.version {
			c.at(c.arriving(m, w), func() {
				c.hear(m, p, w, v, "bookmark", func(l *kube.Life, t time.Time) []kube.Effect { return l.Bookmarked(t, strconv.FormatInt(v, 10)) })
			})
		}
		c.bookmark(m, p, w)
	})
}

// tellWatch tells a watch of a change, when its server has it. One that is further than a server that went back hears nothing until
// that has come as far.
func (c *Cluster) tellWatch(m *machine, p *process, w *follow, how change) {
	if how.version <= w.version || w.version == 0 {
		return
	}
	w.version = how.version
	c.at(c.arriving(m, w), func() {
		if how.gone {
			c.hear(m, p, w, how.version, "gone "+how.Name, func(l *kube.Life, t time.Time) []kube.Effect { return l.Gone(t, how.Object) })
			return
		}
		c.hear(m, p, w, how.version, "saw "+how.Name+"/"+how.ResourceVersion, func(l *kube.Life, t time.Time) []kube.Effect {
			c.toldNode(m, how.Object)
			return l.Saw(t, how.Object)
		})
	})
}

// lostNodes tells a process that its watch is broken. It goes on from where it was, if the server still has what came since.
func (c *Cluster) lostNodes(m *machine, p *process) {
	if p.follow == nil {
		return
	}
	w := &follow{}
	p.follow = w
	again := c.after(500*time.Millisecond, 2*time.Second)
	if !c.reaches(m) {
		c.later(m, p, c.after(10*time.Millisecond, 400*time.Millisecond), "the watch ends", func(l *kube.Life, t time.Time) []kube.Effect { return l.Watches(t, errDown) })
		again = max(again, m.cutOff, m.away)
		if c.store.down {
			again = max(again, c.shaken)
		}
	}
	c.at(max(again, m.asleep), func() {
		switch {
		case m.process != p || p.follow != w:
			return
		case !c.reaches(m):
			c.lostNodes(m, p)
			return
		}
		var own *kube.Object
		if o := c.api.now.find(m.node); o != nil {
			own = o.Object
		}
		if p.heardOf == 0 || p.heardOf < c.api.oldest || !p.life.Continues(own, c.api.now.version) { // 410, or the server went back
			c.listNodes(m, p, c.after(time.Millisecond, 100*time.Millisecond))
			return
		}
		c.live(m, p, "watch", func(l *kube.Life, t time.Time) []kube.Effect { return l.Watches(t, nil) })
		c.goOn(m, p, w, p.heardOf)
	})
}

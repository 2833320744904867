package sim

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/kube"
)

// follow is a watch of Nodes.
type follow struct {
	version int64         // up to which everything was heard
	last    time.Duration // when the latest of what is under way arrives
}

// startLife begins a life with what is saved, in the network of the ConfigMap.
func (c *Cluster) startLife(m *machine, p *process) {
	raw := []byte(configs[c.api.config])
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
	o := keeper.Options{
		Node: m.node, State: m.state, Underlay: asked{}, Config: config.NetworkConfig, RawConfig: raw,
		Unproven: saved == nil, Local: m.local(config), Cache: new(belief.Cache), Cached: saved,
		Rand: rand.New(rand.NewPCG(c.rng.Uint64(), 3)),
	}
	backend := kube.Backend{Alone: facts.Alone, DataV4: facts.DataV4, DataV6: facts.DataV6}
	life, err := kube.NewLife("", true, kube.Options{Options: o, Backend: backend}, m.clock(c.now))
	if err != nil {
		c.fail("a life is made", "m%d: %v", m.index, err)
		return
	}
	m.set = lease.Set{}
	c.unplane(m)
	c.register(m)
	p.core, p.life = life, life
	c.step(m, p, keeper.Begin{})
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
		c.deliver(m, p, at, kube.Patched{Node: n, Err: err})
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
	if n.Annotations[weftKey] != was.Annotations[weftKey] ||
		n.Annotations[publicIP] != was.Annotations[publicIP] {
		author = m.index
	}
	c.writtenNode(m, was, n)
	return c.writeNode(n, author), nil
}

// hear has a watch tell a process something that it knows up to a version, in its turn; unless the watch has
// ended, or ends by it.
func (c *Cluster) hear(m *machine, p *process, w *follow, version int64, e keeper.Event) {
	switch {
	case m.process != p || p.follow != w:
	case c.now < m.asleep:
		c.at(m.asleep, func() { c.hear(m, p, w, version, e) })
	case !c.reaches(m):
		c.lostNodes(m, p)
	default:
		p.heardOf = version
		if c.now > m.heard+time.Minute {
			m.gap = m.heard
		}
		m.heard = c.now
		c.step(m, p, e)
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
			listed := kube.Listed{Version: version}
			for _, o := range i.all {
				listed.Nodes = append(listed.Nodes, o.Object)
			}
			c.hear(m, p, w, i.version, listed)
			c.hear(m, p, w, i.version, kube.Watches{})
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
				c.hear(m, p, w, v, kube.Bookmarked{Version: strconv.FormatInt(v, 10)})
			})
		}
		c.bookmark(m, p, w)
	})
}

// tellWatch tells a watch of a change, when its server has it. One that is further than a server that went
// back hears nothing until that has come as far.
func (c *Cluster) tellWatch(m *machine, p *process, w *follow, how change) {
	if how.version <= w.version || w.version == 0 {
		return
	}
	w.version = how.version
	c.at(c.arriving(m, w), func() {
		if how.gone {
			c.hear(m, p, w, how.version, kube.Gone{Node: how.Object})
			return
		}
		c.hear(m, p, w, how.version, kube.Saw{Node: how.Object})
	})
}

// lostNodes tells a process that its watch is broken. It goes on from where it was, if the server still has
// what came since.
func (c *Cluster) lostNodes(m *machine, p *process) {
	if p.follow == nil {
		return
	}
	w := &follow{}
	p.follow = w
	again := c.after(500*time.Millisecond, 2*time.Second)
	if !c.reaches(m) {
		c.deliver(m, p, c.after(10*time.Millisecond, 400*time.Millisecond), kube.Watches{Err: errDown})
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
		if p.heardOf == 0 || p.heardOf < c.api.oldest || !p.life.Continues(own, c.api.now.version) {
			// 410, or the server went back
			c.listNodes(m, p, c.after(time.Millisecond, 100*time.Millisecond))
			return
		}
		c.arrive(m, p, p.core, kube.Watches{})
		c.goOn(m, p, w, p.heardOf)
	})
}

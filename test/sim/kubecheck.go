package sim

import (
	"encoding/json"
	"time"

	"weft/lease"
	"weft/lease/kube"
)

// patchesMost bounds what one machine writes to its Node in an hour: a burst, then one in ten seconds, and
// heartbeats. tellsMost bounds the Events of which each is about something that lasts for half a minute.
const patchesMost, tellsMost = 450, 2000

// countAsked counts what a machine asks of the API server in an hour.
func (c *Cluster) countAsked(m *machine, n *int, most int, what string) {
	if hour := int(c.now / time.Hour); m.hour != hour {
		m.hour, m.calls, m.tells = hour, 0, 0
	}
	if *n++; *n > most {
		c.fail("nothing grows", "m%d has more than %d "+what+" in an hour", m.index, most)
	}
}

// toldNode notes until when what a Node says counts, by the machine's clock, if it is lost.
func (c *Cluster) toldNode(m *machine, n *kube.Object) {
	s, ends := subnetsOf(n), m.clock(c.now).Add(lease.TTL)
	m.knows(s, ends)
	m.knows(lease.Subnets{V4: s.V4}, ends)
}

// lookLife checks a machine after a step of its life.
func (c *Cluster) lookLife(m *machine, p *process) {
	st := p.life.Status(m.clock(c.now))
	if st.State.String() == "invalid" {
		c.fail("every state has a name", "m%d: %d", m.index, st.State)
	}
	if (st.State == lease.Held) != st.Ready() {
		c.fail("only who holds a lease is ready", "m%d: %s, ready %t", m.index, st.State, st.Ready())
	}
	if len(m.set.Peers) > recordsMost || len(c.api.now.all) > recordsMost {
		c.fail("nothing grows", "m%d knows %d peers, and there are %d Nodes", m.index, len(m.set.Peers),
			len(c.api.now.all))
	}
	if st.State != lease.Held || c.ownsNode(m, st) {
		m.wrong = -1
		return
	}
	if m.wrong < 0 {
		m.wrong = c.now
	}
	if since := max(m.wrong, m.disturbed, c.shaken); c.well(m) && c.now > since+patience {
		c.fail("one owner a subnet", "m%d says that it holds %s since %s; nodes %s", m.index, st.Own.Subnets,
			m.wrong, describeNodes(c.api.now))
	}
}

// ownsNode reports whether the machine's Node gives it what it says that it has, and says where it is.
func (c *Cluster) ownsNode(m *machine, st lease.Status) bool {
	o := c.api.now.find(m.node)
	return o != nil && o.Annotations[managed] == "true" && o.Annotations[publicIP] == m.addr.String() &&
		st.Own.V4 == subnetsOf(o.Object).V4
}

// writtenNode checks a write of m, after which its Node is n, in the place of was.
func (c *Cluster) writtenNode(m *machine, was *object, n *kube.Object) {
	says := was.Annotations[publicIP]
	switch {
	case says == n.Annotations[publicIP]:
		c.came(ToRenew, m)
		return
	case says == "":
		c.came(ToAcquire, m)
		return
	}
	c.came(ToTakeOver, m)
	for _, o := range c.machines {
		p := o.process
		if o == m || o.node != m.node || o.addr.String() != says || was.author != o.index || p == nil ||
			p.life == nil || p.life.Status(o.clock(c.now)).State != lease.Held {
			continue
		}
		since := max(o.disturbed, m.disturbed, c.shaken, p.began)
		if c.now <= since+calm || c.now < o.asleep || !c.linked(m, o) {
			continue
		}
		if c.now > was.since+calm {
			c.fail("a living node is not replaced",
				"m%d at %s writes to the Node of m%d at %s, who has it since %s, lives and answers", m.index, m.addr,
				o.index, o.addr, was.since)
		}
		if c.now > m.process.began+calm && m.over(c.now) > overMost {
			c.fail("two that live do not write over each other",
				"m%d at %s writes to the Node of m%d at %s, who lives and answers, for the %dth time in %s", m.index,
				m.addr, o.index, o.addr, overMost+1, overLong)
		}
	}
}

// overMost is how often in overLong a machine may write over the word of another that lives, of which one may
// not know yet.
const overMost, overLong = 3, 10 * time.Minute

// over counts that the machine writes over the word of another, and returns how often it did lately.
func (m *machine) over(now time.Duration) int {
	if now > m.overSince+overLong {
		m.overSince, m.overs = now, 0
	}
	m.overs++
	return m.overs
}

// claims checks that who says that its pods have a network has a subnet for them.
func (c *Cluster) claims(m *machine, f kube.PatchNode) {
	var says struct {
		Status struct{ Conditions []kube.Condition }
	}
	if err := json.Unmarshal(f.Body(), &says); err != nil {
		c.fail("a patch is JSON", "m%d: %v", m.index, err)
		return
	}
	for _, s := range says.Status.Conditions {
		if own := m.process.life.Status(m.clock(c.now)).Own.Subnets; s.Status == "False" &&
			(own == lease.Subnets{} || m.plane == nil) {
			c.fail("the network is not said to be there before it is", "m%d has %s: %s", m.index, own, f.Body())
		}
	}
}

// healNodes ends what is wrong with Nodes, as an operator and the controllers would.
func (c *Cluster) healNodes() {
	a := c.api
	a.conflicts, a.config = 0, a.wanted
	if a.config >= goodConfigs-1 {
		a.config = 0
	}
	of := map[string]*machine{}
	for _, m := range c.machines {
		if !m.gone {
			of[m.node] = m
		}
	}
	for _, o := range a.now.all {
		if of[o.Name] == nil {
			c.dropNode(o.Name)
		}
	}
	all := a.now.all
	for i, o := range all { // of two that have one podCIDR one is made anew
		for _, e := range all[:i] {
			if e.Spec.PodCIDRs != nil && subnetsOf(e.Object).Overlaps(subnetsOf(o.Object)) {
				c.dropNode(o.Name)
			}
		}
	}
	for _, m := range c.machines {
		for _, o := range a.now.all { // what stands in a Node is somebody else's address by now
			if o.Annotations[publicIP] == m.addr.String() && of[o.Name] != m {
				n := o.DeepCopy()
				n.Annotations = map[string]string{}
				c.writeNode(n, nobody)
			}
		}
	}
	c.breakWatches()
	for _, m := range c.machines {
		if p := m.process; p != nil && string(p.raw) != configs[a.config] {
			c.stop(m)
		}
		c.start(m)
		c.register(m)
		c.assign(m.node)
	}
}

// unsettledNodes says what is not as it should be; "" if all is.
func (c *Cluster) unsettledNodes() (format string, a []any) {
	for _, m := range c.machines {
		if m.gone {
			continue
		}
		p := m.process
		if p == nil || p.life == nil {
			return "m%d does not run", []any{m.index}
		}
		st := p.life.Status(m.clock(c.now))
		switch {
		case st.State != lease.Held || st.Err != nil:
			return "m%d is %s: %v", []any{m.index, st.State, st.Err}
		case !c.ownsNode(m, st):
			return "m%d holds %s, and the nodes are %s", []any{m.index, st.Own.Subnets, describeNodes(c.api.now)}
		case st.StoreErr != nil:
			return "m%d does not hear the API server: %v", []any{m.index, st.StoreErr}
		case m.set.Alarm != "":
			return "m%d: %s", []any{m.index, m.set.Alarm}
		case len(m.set.Peers) != len(c.api.now.all)-1:
			return "m%d has %d peers, and there are %d Nodes: %v",
				[]any{m.index, len(m.set.Peers), len(c.api.now.all), m.set.Rejected}
		}
		for _, r := range m.set.Peers {
			o := c.api.now.find(r.Node())
			if o == nil || subnetsOf(o.Object).V4 != r.V4 || o.Annotations[publicIP] != r.PublicIP.String() ||
				r.Kube == nil || r.Kube.UID != string(o.UID) {
				return "m%d has %s of %s at %s; nodes %s",
					[]any{m.index, r.Subnets, r.Node(), r.Address(), describeNodes(c.api.now)}
			}
		}
	}
	return c.pass()
}

// finishNodes has it looked at what the cluster is after all is mended at a time. What a server that went
// back has lost counts until its time is over, and nothing else happens until then: so all clocks are set a
// day forward.
func (c *Cluster) finishNodes(at time.Duration) (end time.Duration) {
	const most = 90 * time.Minute
	for _, after := range [...]time.Duration{time.Minute, 3 * time.Minute, 10 * time.Minute,
		30 * time.Minute, most} {
		c.at(at+after, func() { c.settled(after == most) })
	}
	c.at(at+31*time.Minute, func() {
		for _, m := range c.machines {
			m.offset += bound
			m.jump, m.jumped = bound, c.now
		}
	})
	return at + most
}

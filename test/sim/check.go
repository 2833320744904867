package sim

import (
	"errors"
	"slices"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/kube"
)

// told notes what an event says of when records end, by the machine's clock.
func (c *Cluster) told(m *machine, e keeper.Event) {
	var s *lease.Snapshot
	switch e := e.(type) {
	case kube.Listed:
		for _, n := range e.Nodes {
			c.toldNode(m, n)
		}
	case kube.Saw:
		c.toldNode(m, e.Node)
	case keeper.News:
		s = e.Snapshot
	case keeper.Result:
		s = &e.Snapshot
	}
	if s == nil {
		return
	}
	if s.ClusterID != "" {
		if c.now > m.heard+time.Minute {
			m.gap = m.heard
		}
		m.heard = c.now
	}
	for _, r := range s.Records {
		ends := r.Expires
		if ends.IsZero() {
			ends = m.clock(c.now).Add(lease.TTL)
		}
		m.knows(r.Subnets, ends)
	}
}

// knows notes when a record ends. A core need not have taken in the last that it was told, so some are kept.
func (m *machine) knows(s lease.Subnets, ends time.Time) {
	k := m.known[s]
	if n := len(k); n > 0 && ends.Sub(k[n-1]).Abs() < time.Second {
		return
	} else if n == 100 { // a record whose end the store does not say has another here with each outage and list
		k = k[1:]
	}
	m.known[s] = append(k, ends)
}

// ended reports whether a record may have come to its end just now, as far as the machine knew.
func (c *Cluster) ended(m *machine, s lease.Subnets) bool {
	now, least := m.clock(c.now), 10*time.Minute
	if m.jump > 0 && c.now < m.jumped+least {
		// of what ended in the time that its clock left out it learns afterwards
		least += m.jump
	}
	return slices.ContainsFunc(m.known[s], func(ends time.Time) bool {
		return ends.Before(now.Add(time.Minute)) && (ends.After(now.Add(-least)) || c.now < m.disturbed+calm)
	})
}

// status is where a machine's process stands; the zero one if there is none.
func (c *Cluster) status(m *machine) lease.Status {
	if p := m.process; p != nil && p.core != nil {
		return p.core.Status(m.clock(c.now))
	}
	return lease.Status{}
}

// holder is the machine that wrote e, if it lives, holds it, and was heard; nil for none.
func (c *Cluster) holder(e *entry) *machine {
	if e == nil || e.author == nobody {
		return nil
	}
	o := c.machines[e.author]
	if !c.well(o) || o.process.core == nil || o.process.core.Status(o.clock(c.now)).Own.Subnets != e.Subnets {
		return nil
	}
	return o
}

// givesWay reports whether o waits for a twin that lives, which m may be, or has moved to an address that is
// another node's, and so answers no twin. A record of o that a backup brings back is none that it has then.
// Nor is was, if it names an address that neither has any more and both ask for its owner at once.
func (c *Cluster) givesWay(o, m *machine, was *entry) bool {
	st := c.status(o)
	var contest *lease.ContestError
	twin := st.State == lease.Waiting && errors.As(st.Err, &contest) && contest.Lives != ""
	return o.node == m.node && (twin || errors.As(st.Err, new(*lease.RivalError)) ||
		st.State != lease.Held && o.addr != was.attrs.PublicIP && m.addr != was.attrs.PublicIP)
}

// written checks a write of m in the place of was, which is nil if nothing is there.
func (c *Cluster) written(m *machine, was *entry, op keeper.WriteRecord) {
	switch {
	case was == nil:
		c.came(ToAcquire, m)
	case was.author == m.index:
		c.came(ToRenew, m)
	default:
		c.replaced(m, was, op.Subnets)
	}
}

// replaced checks a write of m that takes another record, was, away.
func (c *Cluster) replaced(m *machine, was *entry, by lease.Subnets) {
	c.came(ToTakeOver, m)
	if o := c.holder(was); o != nil && o != m && c.well(m) && !c.givesWay(o, m, was) {
		c.fail("a living node is not replaced",
			"m%d (%s at %s) writes %s, and m%d (%s at %s), who lives and answers, has %s", m.index, m.node, m.addr,
			by, o.index, o.node, o.addr, was.Subnets)
	}
}

// removed checks that m removes a record that is nobody's who lives.
func (c *Cluster) removed(m *machine, was *entry) {
	if o := c.holder(was); o != nil && o != m && !c.givesWay(o, m, was) {
		c.fail("nobody's record is deleted", "m%d deletes %s, which m%d has", m.index, was.Subnets, o.index)
	}
}

// writesMost bounds what one machine writes in an hour: a quarrel about a record is met every ten seconds, a
// round of asking has two messages at the most every two, and a read comes before each.
const writesMost = 8000

// writer counts what a machine asks of the store.
func (c *Cluster) writer(m *machine, _ keeper.Operation) {
	hour := int(c.now / time.Hour)
	if m.hour != hour {
		m.hour, m.calls = hour, 0
	}
	if m.calls++; m.calls > writesMost {
		c.fail("nothing grows", "m%d asks the store for the %dth time in an hour", m.index, m.calls)
	}
}

// look checks a machine after a step of its core.
func (c *Cluster) look(m *machine, p *process) {
	st := p.core.Status(m.clock(c.now))
	if st.State.String() == "invalid" {
		c.fail("every state has a name", "m%d: %d", m.index, st.State)
	}
	if (st.State == lease.Held) != st.Ready() {
		c.fail("only who holds a lease is ready", "m%d: %s, ready %t", m.index, st.State, st.Ready())
	}
	if now := m.clock(c.now); st.State == lease.Held && !st.Own.Reservation && now.After(st.Own.Expires) {
		c.fail("only who holds a lease is ready", "m%d: its lease ended at %s, and it is %s", m.index,
			st.Own.Expires, now)
	}
	c.oneOwner(m, st)
	if c.store.now != nil && len(c.store.now.entries) > recordsMost {
		c.fail("nothing grows", "%d records in the store", len(c.store.now.entries))
	}
	if len(m.set.Peers) > recordsMost || len(c.store.mail) > recordsMost*mostMachines {
		c.fail("nothing grows", "m%d knows %d peers, and %d messages wait", m.index, len(m.set.Peers),
			len(c.store.mail))
	}
	if !p.settled && st.ConfigSeen {
		c.compare(m, p, st)
	}
}

// patience is how long a node may hold what the store gives to another: its longest wait after failures, and
// a request.
const patience = 3 * time.Minute

// recordsMost bounds the records of mostMachines and those of strangers.
const recordsMost = 40

// oneOwner checks that of those who say that they hold a subnet, and hear the store, each is the one that the
// store names.
func (c *Cluster) oneOwner(m *machine, st lease.Status) {
	if st.State != lease.Held || c.owns(m, c.store.now.find(st.Own.Subnets)) {
		m.wrong = -1
		return
	}
	if m.wrong < 0 {
		m.wrong = c.now
	}
	if c.well(m) && c.now > m.wrong+patience && c.now > m.disturbed+patience && c.now > c.shaken+patience {
		c.fail("one owner a subnet", "m%d says that it holds %s since %s, and the store has %s", m.index,
			st.Own.Subnets, m.wrong, describe(c.store.now))
	}
}

// owns reports whether an entry says that m is the owner.
func (c *Cluster) owns(m *machine, e *entry) bool {
	return e != nil && !e.bad && (e.author == m.index || e.author == nobody && e.attrs.Node() == m.node &&
		e.attrs.State() == m.state && e.attrs.PublicIP == m.addr)
}

// compare does what the daemon does with the store's configuration until that was the one in use once: it
// takes up another good one, in which this node's subnet is.
func (c *Cluster) compare(m *machine, p *process, st lease.Status) {
	var changed *keeper.ConfigChangedError
	switch {
	case st.ConfigErr == nil:
		p.settled = true
	case errors.As(st.ConfigErr, &changed) && changed.Store.Contains(m.disk.previous) == nil:
		core, raw := p.core, st.StoreConfig
		c.at(c.after(time.Millisecond, time.Second), func() {
			if m.process == p && p.core == core && c.now >= m.asleep && p.calls == 0 {
				c.came(ToReconfigure, m)
				c.step(m, p, keeper.Stop{})
				config, _ := c.parse(raw) // it is a good one
				c.serveConfig(m, p, config, raw, nil)
			}
		})
	}
}

// lately is how long something that was done to a record may still show, beside the time for which a machine
// heard nothing.
const lately = 2 * time.Hour

// published takes in a Set of a machine.
func (c *Cluster) published(m *machine, p *process, set lease.Set) {
	c.whole(m, set)
	for _, old := range m.set.Peers {
		c.missing(m, old, set)
	}
	if set.Own.Subnets != (lease.Subnets{}) {
		m.disk.previous = set.Own.Subnets
		if !p.proven {
			p.proven = true
			c.deliver(m, p, c.now+time.Second, keeper.News{Proven: true})
		}
	}
	m.set = set
	c.carry(m, p, set)
}

// whole checks that a Set does not contradict itself.
func (c *Cluster) whole(m *machine, set lease.Set) {
	for i, r := range set.Peers {
		used := set.Config.InUse(r.Subnets)
		if used.Overlaps(set.Config.InUse(set.Own.Subnets)) || r.Node() == m.node {
			c.fail("a set is whole", "m%d has %s of %s as a peer, and is %s with %s", m.index, r.Subnets, r.Node(),
				m.node, set.Own.Subnets)
		}
		for _, o := range set.Peers[:i] {
			if used.Overlaps(set.Config.InUse(o.Subnets)) {
				c.fail("a set is whole", "m%d has peers %s and %s", m.index, r.Subnets, o.Subnets)
			}
		}
	}
}

// missing checks why a peer is in a Set no more. One that lives, holds its subnet and is reachable goes only
// if somebody who may has removed its record, if its owner or its subnet has shown up elsewhere, if its time
// is over, or if a reason to refuse it is given: not because a store says less than before.
func (c *Cluster) missing(m *machine, old lease.Record, set lease.Set) {
	for _, r := range set.Peers {
		if r.Subnets == old.Subnets && r.Node() == old.Node() {
			return
		}
	}
	for _, r := range set.Rejected {
		if r.Key == old.Key() || old.Kube != nil && r.Key == old.Kube.Name {
			return
		}
	}
	var lives *machine
	for _, o := range c.machines {
		if p := o.process; p != nil && c.now >= o.asleep && o.node == old.Node() && o.addr == old.PublicIP &&
			c.linked(m, o) && c.status(o).Own.Subnets == old.Subnets {
			lives = o
		}
	}
	gone, wasGone := c.store.gone[old.Subnets]
	switch {
	case lives == nil, c.taken(m, old), old.Subnets == set.Own.Subnets, old.Overlaps(set.Own.Subnets):
	case wasGone && gone+lately > m.gap:
	case c.ended(m, old.Subnets):
	default:
		c.fail("a store that lies removes nobody",
			"m%d has removed %s of m%d (%s at %s), which lives; the store has %s", m.index, old.Subnets, lives.index,
			lives.node, lives.addr, c.describeStore())
	}
}

// taken reports whether another owner's record that overlaps old was new in the store lately, or another
// record of its owner.
func (c *Cluster) taken(m *machine, old lease.Record) bool {
	for _, n := range c.store.fresh {
		if n.at+lately > m.gap && (n.Overlaps(old.Subnets) && n.node != old.Node() || n.node == old.Node() &&
			n.Subnets != old.Subnets) {
			return true
		}
	}
	return false
}

// heal ends everything that is wrong: nothing more happens to the cluster.
func (c *Cluster) heal() {
	c.log("heal")
	c.healed = true
	c.store.down, c.store.readOnly = false, false
	clear(c.cut)
	kept := map[string]bool{}
	for _, m := range c.machines {
		m.cutOff, m.away, m.lagUntil, m.lose, m.late, m.full = 0, 0, 0, 0, 0, 0
		if c.now < m.asleep { // what is still under way for it would come too late
			c.wake(m)
			c.kill(m)
			m.asleep = c.now
		}
		if kept[m.node] {
			c.kill(m) // a copy, which is found and switched off
			m.gone = true
		}
		kept[m.node] = true
	}
	if c.api != nil {
		c.healNodes()
		return
	}
	good := false
	for n := range goodConfigs {
		good = good || string(c.store.wanted) == configs[n]
	}
	if !good {
		c.store.wanted = []byte(configs[c.script.Config])
	}
	if string(c.store.now.config) != string(c.store.wanted) {
		c.configure(c.store.wanted)
	}
	wanted, _ := c.parseConfig(c.store.wanted)
	for _, e := range c.store.now.entries { // strangers' records, which an operator releases
		if (e.author == nobody || e.expires == 0) &&
			(e.bad || !kept[e.attrs.Node()] || e.attrs.State() == "elsewhere" || c.doubled(e) ||
				wanted.Unfit(e.Subnets) != "" || e.V6.IsValid() != wanted.EnableIPv6) {
			c.remove(e)
		}
	}
	for _, m := range c.machines {
		// what was reserved for a node that has another subnet by now, which an operator gives free
		for _, e := range c.store.now.entries {
			if p := m.process; e.expires == 0 && !e.bad && e.attrs.Node() == m.node && p != nil && p.core != nil {
				own := p.core.Status(m.clock(c.now)).Own.Subnets
				if own != (lease.Subnets{}) && own != e.Subnets {
					c.remove(e)
				}
			}
		}
	}
	for _, m := range c.machines { // records of who was at an address before whoever is there now
		for _, e := range c.store.now.entries {
			if e.attrs.PublicIP == m.addr && e.attrs.Node() != m.node {
				c.remove(e)
			}
		}
	}
	c.breakWatches()
	for _, m := range c.machines {
		if p := m.process; p != nil && p.core != nil && !p.config.Equal(wanted) {
			c.stop(m) // only a restart adopts a configuration that has changed
		}
		if wanted.Contains(m.disk.previous) != nil {
			c.stop(m)
			m.disk = disk{} // its pods are of a network that is gone, and so it is told to forget them
		}
		c.start(m)
	}
}

// doubled reports whether there is another record in the store that overlaps e.
func (c *Cluster) doubled(e *entry) bool {
	return slices.ContainsFunc(c.store.now.entries, func(f *entry) bool {
		return f != e && f.Overlaps(e.Subnets)
	})
}

// settled checks, when nothing has gone wrong for a while, that all is as it should be. last says that it has
// to be by now; else what is not yet may still become so.
func (c *Cluster) settled(last bool) {
	for _, m := range c.machines {
		c.growth(m)
	}
	if why, a := c.unsettled(); why != "" {
		if last {
			c.fail("every view converges", why, a...)
		}
		return
	}
	if !last {
		c.log("settled")
		c.queue = nil
	}
}

// unsettled says what is not as it should be; "" if all is.
func (c *Cluster) unsettled() (format string, a []any) {
	if c.api != nil {
		return c.unsettledNodes()
	}
	for i, e := range c.store.now.entries {
		for _, f := range c.store.now.entries[:i] {
			if e.Overlaps(f.Subnets) {
				return "%s and %s overlap", []any{e.Subnets, f.Subnets}
			}
		}
	}
	for _, m := range c.machines {
		if m.gone {
			continue
		}
		p := m.process
		if p == nil || p.core == nil {
			return "m%d does not run", []any{m.index}
		}
		st := p.core.Status(m.clock(c.now))
		switch e := c.store.now.find(st.Own.Subnets); {
		case st.State != lease.Held:
			return "m%d is %s: %v", []any{m.index, st.State, st.Err}
		case !c.owns(m, e) || !e.attrs.Equal(m.local(p.config).Signed(m.node, m.state).Attrs):
			return "m%d holds %s", []any{m.index, st.Own.Subnets}
		case st.ConfigErr != nil:
			return "m%d: %v", []any{m.index, st.ConfigErr}
		case m.set.Alarm != "":
			return "m%d: %s", []any{m.index, m.set.Alarm}
		}
		if len(m.set.Peers) != len(c.store.now.entries)-1 {
			return "m%d has %d peers, and the store %d records: %v",
				[]any{m.index, len(m.set.Peers), len(c.store.now.entries), m.set.Rejected}
		}
		for _, r := range m.set.Peers {
			if e := c.store.now.find(r.Subnets); e == nil || e.bad || !e.attrs.Equal(r.Attrs) {
				return "m%d has %s of %s at %s", []any{m.index, r.Subnets, r.Node(), r.Address()}
			}
		}
	}
	return c.pass()
}

package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/lease"
	"weft/lease/kube/internal/objects"
)

// observe takes in what the API server has.
func (m *Manager) observe(v view) {
	st := &m.state
	records, twice := single(v.records, st.held.Subnets, v.claims, st.refused)
	st.once = v.once(st.once)
	alarm := st.peers.Believe(lease.Snapshot{
		ClusterID: m.cluster(v), Revision: v.revision, Config: m.o.RawConfig, Records: records, Bad: v.bad,
	}, m.o.RawConfig, time.Now(), twice...)
	if alarm != "" {
		m.log.Error("removals are not believed", "alarm", alarm)
	}
	st.source = sourceServer
	if v.ours != nil {
		st.ownUID = string(v.ours.UID)
	}
}

// cluster names the cluster: by the UID that our Node had when we first knew it. A UID is never
// given twice, so it is the same cluster as long as any Node still has the one that it had; our
// own may be deleted and made anew. An API server that was wiped or replaced has no such Node.
func (m *Manager) cluster(v view) string {
	st, mem := &m.state, m.state.peers.Memory()
	own := "none"
	if v.ours != nil {
		own = string(v.ours.UID)
	}
	if mem.ClusterID == "" {
		return own
	}
	if own == st.ownUID {
		return mem.ClusterID
	}
	known := make(map[lease.KubeNode]bool, len(mem.Peers))
	for _, p := range mem.Peers {
		if p.Kube != nil {
			known[*p.Kube] = true
		}
	}
	if slices.ContainsFunc(v.records, func(r lease.Record) bool { return known[*r.Kube] }) {
		return mem.ClusterID
	}
	return own
}

// judge draws the consequences for our own record.
func (m *Manager) judge(nodes *nodes) {
	st, ours := &m.state, nodes.ourNode()
	var own lease.Subnets
	var notes []string
	var err error = &noNodeError{name: nodes.own}
	if ours != nil {
		own, notes, err = ownSubnets(m.o.Config, ours.Name, cidrsOf(ours))
		v4, v6, faults := nodes.keys.overwrites(ours.Annotations)
		notes = append(notes, faults...)
		m.setOverwrite(v4, v6)
	}
	if err == nil {
		other := m.namesake(ours, time.Now())
		if m.setWaits(other != nil); other != nil {
			m.setOwn(lease.Subnets{})
			m.enter(lease.Waiting, notes, other)
			return
		}
	}
	if ours != nil {
		m.setJudged()
	}
	m.setOwn(own)
	if err != nil {
		m.without(nodes, notes, err)
		return
	}
	if before := st.held.Subnets; before != own {
		if before != (lease.Subnets{}) {
			m.log.Warn("the podCIDR of our Node is another: pods that have an address of the former one are cut off", "before", before.String(), "now", own.String())
		}
	}
	local, _ := m.announced()
	st.tenure = given
	st.held = lease.Record{Subnets: own, Attrs: local.Attrs, Kube: &lease.KubeNode{Name: ours.Name, UID: string(ours.UID)}}
	m.confirm(ours, notes)
}

var errNotWritten = errors.New("our annotations are not written yet")

// confirm is judge with a podCIDR: the state is what our annotations are.
func (m *Manager) confirm(ours *objects.Node, notes []string) {
	want, err := m.client.keys.encode(m.state.held.Attrs, m.o.Backend)
	var p patch
	p.annotations(m.client.keys, ours.Annotations, want)
	right := p.empty() && err == nil
	if right && m.state.namesake.right.IsZero() {
		m.state.namesake.right = time.Now()
	}
	m.mu.Lock()
	if err == nil {
		err = m.writeErr
	}
	m.written = m.written || right
	written, refused := m.written, m.refused
	m.mu.Unlock()
	state := lease.Held
	switch {
	case right || written && !refused:
		err = nil // in order, or being written, or to be once the API server answers
	case written:
		state = lease.Expired
	case m.state.began == sourceCache:
		state = lease.Unconfirmed
	default:
		state = lease.Acquiring
	}
	if state != lease.Held && err == nil {
		err = errNotWritten
	}
	m.enter(state, notes, err)
}

// without is judge where our Node gives us nothing. We keep what we had until another Node has it.
func (m *Manager) without(nodes *nodes, notes []string, why error) {
	st := &m.state
	before := st.held.Subnets
	if before == (lease.Subnets{}) {
		state := lease.Acquiring
		if st.tenure == lost {
			state = lease.Lost
		}
		m.enter(state, notes, why)
		return
	}
	if name, theirs := nodes.claimed(before); name != "" {
		st.held, st.tenure = lease.Record{}, lost
		m.enter(lease.Lost, notes, fmt.Errorf("%w; %w", &lease.TakenError{Subnets: before, By: name, Their: theirs}, why))
		return
	}
	m.enter(lease.Expired, notes, why)
}

func (m *Manager) setOverwrite(v4, v6 netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.overwrite = [2]netip.Addr{v4, v6}
}

// setWaits says whether our Node is another machine's.
func (m *Manager) setWaits(waits bool) {
	m.mu.Lock()
	m.judged, m.waits = true, waits
	m.mu.Unlock()
}

// setJudged says that our Node, which gives us nothing, was looked at.
func (m *Manager) setJudged() {
	m.mu.Lock()
	m.judged = true
	m.mu.Unlock()
}

// setOwn says what our annotations stand for, and has them written.
func (m *Manager) setOwn(own lease.Subnets) {
	m.mu.Lock()
	m.own = own
	m.mu.Unlock()
	poke(m.write)
}

// publish computes the Set and hands it out if it is not the last one.
func (m *Manager) publish() {
	st := &m.state
	local, _ := m.announced()
	a := local.Attrs
	rules := lease.Rules{
		Config: m.o.Config, Own: st.held.Subnets, AnyLength: true,
		Self:     lease.Self{Node: m.o.Node, PublicIP: a.PublicIP, PublicIPv6: a.PublicIPv6},
		Underlay: local.Underlay, Store: local.Store,
	}
	before, first := st.peers.Accepted(), !st.peers.Handed()
	set, news := st.peers.Set(rules, st.held)
	m.mu.Lock()
	m.status.Alarm, m.status.Peers, m.status.Rejected = set.Alarm, len(set.Peers), set.Rejected
	m.status.ClusterID = st.peers.Memory().ClusterID
	m.mu.Unlock()
	if !news {
		return
	}
	m.o.Publish(set)
	poke(m.write)
	if !first {
		st.once = unpublished(set, before, st.once)
	}
}

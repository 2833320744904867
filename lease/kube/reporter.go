package kube

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

const (
	// brokenFor is how long pods have no network before the condition says so. The scheduler then keeps
	// new pods away, which would be too much for a restart, or for a device that is made anew.
	brokenFor = time.Minute
	// problemFor is how long anything else lasts before it is told.
	problemFor = 30 * time.Second
	// sayAgain is how long a condition says what it says, as long as it is true all the same.
	sayAgain = time.Minute
)

// A condition that does not change is written again now and then, so that its heartbeat tells how old
// it is: every beatLeast, as a kubelet does its own, and more seldom in a large cluster, since the API server
// sends each write to every node.
const (
	beatLeast   = 5 * time.Minute
	beatPerNode = 360 * time.Millisecond
)

// reporter tells people how this node is, by Events and by the condition NetworkUnavailable of our Node. It
// goes by the lease's status, by what the daemon says of the data path, and by what was written before. It
// writes nothing: the Life does.
type reporter struct {
	conditions            bool // the condition is kept
	broken, problem, beat time.Duration
	path                  *DataPath            // nil until the daemon has said how it is
	since                 map[string]time.Time // since when there is which problem, by reason
	active                []problem            // what has lasted long enough to be told
	doubt                 bool                 // something cuts pods off, and is not active yet
	subnet                bool                 // pods have one
	blind                 string               // the reason of the last condition, if our Node was not read then
	written               time.Time            // when we wrote the condition last; zero for not since the start
	// late is by how much the next heartbeat is put off, so that nodes do not march in step.
	late time.Duration
	// cutOff says that a stop did not wait for the answer to a write that says that pods have a network.
	cutOff bool
}

// update takes in where the lease stands, and refused, which is why the API server does not take what we
// write; nil if it does. It returns the Events to be told, and when there is more to tell by itself; zero
// for never.
func (r *reporter) update(s lease.Status, refused error, now time.Time) (tell []notice, next time.Time) {
	var path DataPath
	if r.path != nil {
		path = *r.path
	}
	r.subnet = s.Own.Subnets != lease.Subnets{}
	return r.take(problems(s, path, refused), now)
}

// take is update with what is amiss now.
func (r *reporter) take(all []problem, now time.Time) (tell []notice, next time.Time) {
	if r.since == nil {
		r.since = map[string]time.Time{}
	}
	before, there := r.active, map[string]bool{}
	r.active, r.doubt = nil, false
	for _, p := range all {
		there[p.reason] = true
		since, known := r.since[p.reason]
		if !known {
			since, r.since[p.reason] = now, now
		}
		at := since.Add(r.problem)
		if p.cuts {
			at = since.Add(r.broken)
		}
		if now.Before(at) {
			r.doubt = r.doubt || p.cuts
			next = soonest(next, at)
			continue
		}
		if !slices.ContainsFunc(before, func(b problem) bool { return b.reason == p.reason }) {
			tell = append(tell, newNotice(corev1.EventTypeWarning, p.reason, p.text, now))
		}
		r.active = append(r.active, p)
	}
	for _, p := range before {
		if there[p.reason] {
			continue
		}
		reason := p.reason + "Over"
		if len(r.active) == 0 {
			reason = reasonUp
		}
		over := fmt.Sprintf("over after %s: %s", now.Sub(r.since[p.reason]).Round(time.Second), p.text)
		tell = append(tell, newNotice(corev1.EventTypeNormal, reason, over, now))
	}
	maps.DeleteFunc(r.since, func(reason string, _ time.Time) bool { return !there[reason] })
	return tell, next
}

// condition adds the condition to p if n, our Node in a cluster of so many, has to say it. It returns when
// that is if it is later; zero for never.
func (r *reporter) condition(p *patch, n *corev1.Node, nodes int, now time.Time) (next time.Time) {
	if !r.conditions || r.path == nil {
		return time.Time{}
	}
	says, have := condition(r.active), networkCondition(n)
	if says.Status == corev1.ConditionFalse && r.doubt {
		return time.Time{} // nobody says meanwhile that all is well
	}
	at, beat := now, false
	switch {
	case differs(have, says, !r.written.IsZero()):
		if have != nil && have.Status == says.Status {
			at = r.written.Add(sayAgain) // a new reason can wait: reasons may come in quick succession
		}
	case isOurReason(have.Reason):
		at = have.LastHeartbeatTime.Add(max(r.beat, time.Duration(nodes)*beatPerNode) + r.late)
		beat = true
	default:
		return time.Time{}
	}
	if now.Before(at) {
		return at
	}
	p.beat = beat
	p.condition(n, says, now)
	return time.Time{}
}

// unread is condition where our Node cannot be read, but perhaps be written. Whether pods have a subnet is
// not known then, unless it is by the cache.
func (r *reporter) unread(p *patch, now time.Time) {
	if !r.conditions || r.path == nil || len(r.active) == 0 {
		return
	}
	says := condition(r.active)
	known := says.Status != corev1.ConditionFalse || !r.doubt && r.subnet
	if known && says.Reason != r.blind && !now.Before(r.written.Add(sayAgain)) {
		p.condition(&corev1.Node{}, says, now)
	}
}

// wrote notes that c was written. late is below the fifth part of a heartbeat.
func (r *reporter) wrote(c corev1.NodeCondition, late time.Duration, now time.Time) {
	r.written, r.blind, r.late = now, c.Reason, late
}

// farewell adds the condition to the last write: it takes back that pods have a network.
func (r *reporter) farewell(p *patch, n *corev1.Node, now time.Time) {
	have := networkCondition(n)
	if r.cutOff || have != nil && have.Status == corev1.ConditionFalse && isOurReason(have.Reason) {
		p.condition(n, corev1.NodeCondition{
			Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionUnknown,
			Reason: reasonStopped, Message: messageStop,
		}, now)
	}
}

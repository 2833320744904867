package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

// Object is a Node as the API server has it, with what weft reads of it. One that a Life was told of is not
// changed any more.
type Object = corev1.Node

// Condition is one thing that is true, false or unknown of an Object.
type Condition = corev1.NodeCondition

// Life is the life of one node in a cluster without an API server, a clock, a disk or a goroutine: a core,
// and the table of what the watch has said of Nodes. A Manager is a Life with those; the simulator in
// test/sim has many. Step takes in what has happened at a time, which does not go back, and returns what is
// to be done. The same options, random numbers, times and events give the same effects. It is not safe for
// concurrent use.
type Life struct {
	core  *core
	table *table // nil until our Node's name is known

	heard func()     // is called after each word of the API server
	tell  func(news) // is called with what is new of Nodes
	said  news       // if the caller brings no tell: what the core is to be told next
}

// NewLife returns a life that has not begun. prefix is that of the annotations, and conditioned says that the
// condition NetworkUnavailable is kept. Of the options those are used that are no I/O; of Cache and Underlay
// only whether there is one. Rand is required, and the life's from now on. The error joins every fault in
// prefix and options.
func NewLife(prefix string, conditioned bool, o Options, now time.Time) (*Life, error) {
	k, err := newKeys(prefix)
	if err != nil {
		return nil, err
	}
	c, err := newCore(k, conditioned, o, now)
	if err != nil {
		return nil, err
	}
	l := &Life{core: c}
	l.heard = func() {} // whatever the table is told is handed on at once
	l.tell = func(n news) { l.said.merge(n) }
	return l, nil
}

// step hands e to the core, and answers what it asks of the table.
func (l *Life) step(now time.Time, e event) (out []Effect) {
	for events := []event{e}; len(events) > 0; events = events[1:] {
		for _, f := range l.core.step(now, events[0]) {
			switch f := f.(type) {
			case readNodes:
				events = append(events, nodesRead{l.table.read()})
			case WatchNodes:
				l.table = newTable(l.core.keys, l.core.o.Config, f.name, l.heard, l.tell)
				out = append(out, f)
			default:
				out = append(out, f)
			}
		}
	}
	return out
}

// watched hands the core what the table has made of what the watch said.
func (l *Life) watched(now time.Time) []Effect {
	n := l.said
	n.heard, l.said = now, news{}
	return l.step(now, n)
}

// Step takes in what has happened: a lease.Begin, Tick, News, Saved or Stop, which mean what they mean for a
// lease.Core, or a type of event.go. Before Begin, and after the end, everything is taken in and nothing is
// done.
func (l *Life) Step(now time.Time, e lease.Event) []Effect {
	switch e := e.(type) {
	case lease.Tick:
		return l.step(now, news{})
	case lease.News:
		return l.step(now, news{local: e.Local, proven: e.Proven})
	case lease.Stop:
		return l.step(now, stop{})
	case Watches:
		return l.step(now, news{watch: &e})
	case Answered:
		return l.step(now, news{answer: &e})
	case DataPath:
		return l.step(now, news{path: &e})
	case Listed, Saw, Gone, Bookmarked:
		if l.table == nil {
			return nil
		}
		l.table.take(e)
		return l.watched(now)
	case Patched:
		if e.Err == nil && l.table != nil {
			e.Node = l.table.answered(e.Node)
		}
		out := l.step(now, e)
		if l.said != (news{}) { // else the table's owner was told, or there is nothing to tell
			out = append(out, l.watched(now)...)
		}
		return out
	}
	return l.step(now, e)
}

// Continues reports whether a watch that resumes from the known version hears the store that own and version
// come from, as far as our Node tells. own is our Node now, nil if it is gone, and version the store's. If
// not, everything has to be read again.
func (l *Life) Continues(own *Object, version int64) bool {
	if l.table == nil {
		return true
	}
	if own != nil {
		own = l.table.trim(own)
	}
	return !contradicts(l.table.ourNode(), own, l.table.at(), version)
}

// Status is where the life stands; the caller owns it. Nothing in it ends by itself.
func (l *Life) Status(time.Time) lease.Status { return l.core.status() }

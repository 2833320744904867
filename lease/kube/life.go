package kube

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

// Object is a Node as the API server has it, with what weft reads of it. One that a Life was told of is not changed any more.
type Object = corev1.Node

// Condition is one thing that is true, false or unknown of an Object.
type Condition = corev1.NodeCondition

// Life is the life of one node in a cluster without an API server, a clock, a disk or a goroutine: a core, and the table
// of what the watch has said of Nodes. A Manager is a Life with those; the simulator in test/sim has many. Each method
// that takes now, a time that does not go back, tells what has happened then, and returns what is to be done. The same options, random numbers,
// times and events give the same effects. It is not safe for concurrent use.
type Life struct {
	core  *core
	table *table // nil until our Node's name is known

	heard func()     // is called after each word of the API server
	tell  func(news) // is called with what is new of Nodes
	said  news       // if the caller brings no tell: what the core is to be told next
}

// NewLife returns a life that has not begun. prefix is that of the annotations, and conditioned says that the condition
// NetworkUnavailable is kept. Of the options those are used that are no I/O; of Cache and Underlay only whether there is
// one. The random numbers are the life's from now on. The error joins every fault in prefix and options.
func NewLife(prefix string, conditioned bool, o Options, rng *rand.Rand, now time.Time) (*Life, error) {
	k, err := newKeys(prefix)
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	l := &Life{core: newCore(k, conditioned, o, rng, now)}
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

// Begin begins the life. Before it, and after the end, everything is taken in and nothing is done.
func (l *Life) Begin(now time.Time) []Effect { return l.step(now, begin{}) }

// Tick says that time has passed.
func (l *Life) Tick(now time.Time) []Effect { return l.step(now, news{}) }

// Found answers a FindNode.
func (l *Life) Found(now time.Time, name string, err error) []Effect {
	return l.step(now, found{name, err})
}

// Listed says what all Nodes were at a version: that is how a watch begins, and begins anew.
func (l *Life) Listed(now time.Time, nodes []*Object, version string) []Effect {
	if l.table == nil {
		return nil
	}
	list := make([]any, len(nodes))
	for i, n := range nodes {
		list[i] = n
	}
	_ = l.table.Replace(list, version) // only what is no Node is an error
	return l.watched(now)
}

// Saw says that a Node was made or changed.
func (l *Life) Saw(now time.Time, n *Object) []Effect { return l.change(now, n, (*table).Add) }

// Gone says that a Node was deleted.
func (l *Life) Gone(now time.Time, n *Object) []Effect { return l.change(now, n, (*table).Delete) }

func (l *Life) change(now time.Time, n *Object, as func(*table, any) error) []Effect {
	if l.table == nil {
		return nil
	}
	_ = as(l.table, n) // only what is no Node is an error
	l.table.UpdateResourceVersion(n.ResourceVersion)
	return l.watched(now)
}

// Bookmarked says that nothing has happened up to a version.
func (l *Life) Bookmarked(now time.Time, version string) []Effect {
	if l.table == nil {
		return nil
	}
	l.table.UpdateResourceVersion(version)
	return l.watched(now)
}

// Continues reports whether a watch that resumes from the known version hears the store that own and version
// come from, as far as our Node tells. own is our Node now, nil if it is gone, and version the store's. If
// not, everything has to be read again.
func (l *Life) Continues(own *Object, version int64) bool {
	return l.table == nil || !contradicts(l.table.ourNode(), own, l.table.at(), version)
}

// Watches says that the watch is served, with nil, or why it is not.
func (l *Life) Watches(now time.Time, err error) []Effect {
	return l.step(now, news{watch: &watchState{err}})
}

// Patched answers a PatchNode with what our Node is after it, or with an error.
func (l *Life) Patched(now time.Time, n *Object, err error) []Effect {
	if err != nil || l.table == nil {
		return l.step(now, patched{err: err})
	}
	out := l.step(now, patched{node: l.table.answered(n)})
	if l.said == (news{}) { // the table's owner was told, or there is nothing to tell
		return out
	}
	return append(out, l.watched(now)...)
}

// Probed answers a ProbeServer: with an error if the API server is silent.
func (l *Life) Probed(now time.Time, err error) []Effect { return l.step(now, probed{err}) }

// Answered answers a lease.AskUnderlay.
func (l *Life) Answered(now time.Time, round int, yes bool) []Effect {
	return l.step(now, news{answer: &answer{round, yes}})
}

// Saved answers a lease.SaveCache.
func (l *Life) Saved(now time.Time, s lease.Saved) []Effect { return l.step(now, s) }

// Local says what this node says of itself from now on.
func (l *Life) Local(now time.Time, local lease.Local) []Effect {
	return l.step(now, news{local: &local})
}

// Proven says that the configuration can be served: from now on it is cached.
func (l *Life) Proven(now time.Time) []Effect { return l.step(now, news{proven: true}) }

// DataPath says how the data path is, as Manager.SetDataPath does.
func (l *Life) DataPath(now time.Time, broken, former, alone string) []Effect {
	return l.step(now, news{path: &dataPath{broken, former, alone}})
}

// Stop ends the life. A request that is under way still gets its answer.
func (l *Life) Stop(now time.Time) []Effect { return l.step(now, stop{}) }

// Status is where the life stands; the caller owns it.
func (l *Life) Status() lease.Status { return l.core.status() }

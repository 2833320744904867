package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
)

// event is something that has happened to a node: what core.step takes in. It is one of the types
// of this file, or a lease.Saved. Unlike lease.Event it is open, since a type of another package
// is among them.
type event any

// begin says that the node begins its life. Before it, and after the end, a core takes everything in
// and does nothing.
type begin struct{}

// news is what has come in from outside since the last one, in any combination. The zero value says
// that time has passed. Of two that come one after the other merge makes one, so that a flood costs
// one step.
type news struct {
	heard   time.Time    // when the API server last said anything; zero for not since then
	own     *sighting    // what the watch last said of our Node; nil for nothing
	changed bool         // the watch has said something new of some Node since everything was read
	urgent  bool         // and of our own, or of all: it is not waited for more
	watch   *watchState  // whether the watch is served; nil for no change
	answer  *answer      // to the latest lease.AskUnderlay; nil for none
	local   *lease.Local // what this node says of itself from now on; nil for no change
	path    *dataPath    // how the data path is from now on; nil for no change
	proven  bool         // the configuration can be served: from now on it is cached
}

// sighting is what a watch says of our Node.
type sighting struct {
	node *corev1.Node // trimmed, and changed by nobody; nil if it is not there
	all  bool         // it is of a complete list, which may be of an older version, after a restore
}

// watchState says whether the API server serves the watch.
type watchState struct{ err error }

// answer says whether somebody answered over the underlay.
type answer struct {
	round int // of the lease.AskUnderlay
	yes   bool
}

// dataPath is what the daemon says of the data path.
type dataPath struct {
	broken string // what is wrong with it; "" if packets flow
	former string // pods have addresses of subnets that are not ours any more; "" if none have
	alone  string // no peer answers; "" if one does, or may
}

// found is what became of a findNode.
type found struct {
	name string
	err  error
}

// nodesRead is the answer to a readNodes.
type nodesRead struct{ view view }

// patched is what became of a patchNode.
type patched struct {
	node *corev1.Node // as it is now, trimmed; nil beside an error
	err  error
}

// probed is what became of a probeServer: an error if the API server is silent.
type probed struct{ err error }

// stop ends the life. A request that is under way still gets its answer.
type stop struct{ last news }

// merge adds what came after n.
func (n *news) merge(later news) {
	if later.heard.After(n.heard) {
		n.heard = later.heard
	}
	if later.own != nil {
		all := n.own != nil && n.own.all || later.own.all
		n.own = &sighting{later.own.node, all}
	}
	n.changed, n.urgent = n.changed || later.changed, n.urgent || later.urgent
	n.proven = n.proven || later.proven
	latest(&n.watch, later.watch)
	latest(&n.answer, later.answer)
	latest(&n.local, later.local)
	latest(&n.path, later.path)
}

// latest replaces what is known by what came later, if anything did.
func latest[T any](known **T, later *T) {
	if later != nil {
		*known = later
	}
}

package kube

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease/keeper"
)

// Object is a Node as the API server has it, with what weft reads of it. One that a Life was told of is not
// changed any more.
type Object = corev1.Node

// Condition is one thing that is true, false or unknown of an Object.
type Condition = corev1.NodeCondition

// Listed says what all Nodes were at a version: that is how a watch begins, and begins anew.
type Listed struct {
	Nodes   []*Object
	Version string
}

// Saw says that a Node was made or changed, and Gone that it was deleted.
type (
	Saw  struct{ Node *Object }
	Gone struct{ Node *Object }
)

// Bookmarked says that nothing has happened up to a version.
type Bookmarked struct{ Version string }

// Watches says whether the API server serves the watch: with the reason if it does not.
type Watches struct{ Err error }

// Answered is the answer to a keeper.AskUnderlay: whether somebody answered over the underlay.
type Answered struct {
	Round int
	Yes   bool
}

// DataPath is what the daemon says of the data path, as in Manager.SetDataPath.
type DataPath struct{ Broken, Former, Alone string }

// Found is the answer to a FindNode.
type Found struct {
	Name string
	Err  error
}

// Patched is the answer to a PatchNode: what our Node is after it, or the error.
type Patched struct {
	Node *Object
	Err  error
}

// Probed is the answer to a ProbeServer: an error if the API server is silent.
type Probed struct{ Err error }

// news is what has come in from outside since the last one, in any combination. The zero value says
// that time has passed. Of two that come one after the other merge makes one, so that a flood costs
// one step.
type news struct {
	heard   time.Time     // when the API server last said anything; zero for not since then
	changed bool          // the watch has said something new of some Node since everything was read
	urgent  bool          // and of our own, or of all: it is not waited for more
	watch   *Watches      // whether the watch is served; nil for no change
	answer  *Answered     // to the latest keeper.AskUnderlay; nil for none
	local   *keeper.Local // what this node says of itself from now on; nil for no change
	path    *DataPath     // how the data path is from now on; nil for no change
	proven  bool          // the configuration can be served: from now on it is cached
}

// stop ends the life. A request that is under way still gets its answer.
type stop struct{ last news }

// merge adds what came after n.
func (n *news) merge(later news) {
	if later.heard.After(n.heard) {
		n.heard = later.heard
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

package kube

import (
	"weft/lease/keeper"
)

// Effect is something to be done for a Life. It is one of the types of this
// file, or keeper.Publish, keeper.SaveCache, keeper.AskUnderlay, keeper.Log or keeper.Wait, which mean what
// they mean for a keeper.Core, but that a no is an answer to AskUnderlay too, and that SaveCache is
// done beside everything else, one at a time.
type Effect = keeper.Effect

// FindNode asks which Node is ours, and for a Found. It is done beside everything else; of FindNode and
// PatchNode one is under way at a time.
type FindNode struct{}

// WatchNodes asks that the life is told what is new of Nodes, from now on.
type WatchNodes struct {
	name  string // of our Node
	alone bool   // no other is looked at
}

// PatchNode asks for a write to our Node and for a Patched, beside everything else.
type PatchNode struct {
	name  string
	patch patch
	last  bool // the node stops, and does not wait for longer than farewellTimeout
}

// Node is the name of the Node that is written.
func (f PatchNode) Node() string { return f.name }

// Body is the strategic merge patch of the Node's status, as it is sent. The caller owns it.
func (f PatchNode) Body() []byte { return f.patch.body() }

// ProbeServer asks the API server for a sign of life, and for a Probed, beside everything else.
type ProbeServer struct{}

// Tell asks for an Event about our Node, beside everything else and in its own time.
type Tell struct{ notice }

// Reason is the Event's reason.
func (f Tell) Reason() string { return f.reason }

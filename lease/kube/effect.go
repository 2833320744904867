package kube

// effect is something to be done for a core, as its step returns it. It is one of the types of this
// file, or lease.Publish, lease.SaveCache, lease.AskUnderlay, lease.Log or lease.Wait, which mean what
// they mean for a lease.Core, but that news have the answer to AskUnderlay also if it is no, and that SaveCache is
// done beside everything else, one at a time. Effects are done in
// their order, each before the next event but for what says otherwise.
type effect any

// findNode asks which Node is ours, and for a found. It is done beside everything else; of findNode and
// patchNode one is under way at a time.
type findNode struct{}

// watchNodes asks that news have what is new of Nodes, from now until the stopped.
type watchNodes struct {
	name  string // of our Node
	alone bool   // no other is looked at
}

// readNodes asks for everything that the watch knows, in a nodesRead before any other event.
type readNodes struct{}

// patchNode asks for a write to our Node and for a patched, beside everything else.
type patchNode struct {
	name  string
	patch patch
	last  bool // the node stops, and does not wait for longer than farewellTimeout
}

// probeServer asks the API server for a sign of life, and for a probed, beside everything else.
type probeServer struct{}

// tell asks for an Event about our Node, beside everything else and in its own time.
type tell struct{ notice }

// stopped is the end of the life, after which there are no effects.
type stopped struct{}

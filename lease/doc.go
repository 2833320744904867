// Package lease decides who owns which subnet. It holds the network
// configuration, the records of the store and their checks, the allocation of a
// subnet, and the life of a node's own lease.
//
//	             events: News, Result, Saved, Tick                    effects
//	store, clock, disk ──────────> Core.Step ──────────> Call, Publish, SaveCache, AskUnderlay, Log, Wait
//
//	turn: takeSnapshot ──Believe──> Memory ──judge──> contest, duties, tenure
//	      takeMessages: what others ask and answer
//	      nextWork ──Plan──> Call{WriteRecord}, a compare-and-swap
//	      finish: Memory ──Check──> Set ──> Publish, SaveCache, Wait
//
// Core has no clock and does no I/O: Keeper is a Core with a Store, a clock and a disk (run.go). A
// continuation is the step that a turn waits for; a tenure is our way of having the subnet; duties are reads
// and deletions due before the next write; a contest is about another owner. The State that people see is
// computed of those (state.go).
//
// A Store is where records live: lease/etcd has one, lease/leasetest one in memory. In Kubernetes others
// decide who owns what: lease/kube has a core of its own, of the same parts (Base, Rounds). The formats are
// flannel's, so that nodes of both kinds share a network.
package lease

// Package keeper is the life of a node's own lease.
//
//	             events: News, Result, Saved, Tick                    effects
//	store, clock, disk ──────────> Core.Step ──────────> Call, Publish, SaveCache, AskUnderlay, Log, Wait
//
//	turn: takeSnapshot ──Believe──> Memory ──judge──> contest, duties, tenure     (observe.go, judge.go)
//	      takeMessages: what others ask and answer                                (ask.go)
//	      nextWork ──Plan──> Call{WriteRecord}, a compare-and-swap                (work.go, alloc.go, write.go)
//	      finish: Memory ──Check──> Set ──> Publish, SaveCache, Wait              (core.go, base.go)
//
// Core has no clock and does no I/O. Keeper is a Core with a Store, a clock and a disk (keeper.go, run.go). A
// continuation is the step that a turn waits for. A tenure is how the node has its subnet (tenure.go). Duties
// are reads and deletions that are due before the next write. A contest is about another owner (contest.go).
// The lease.State that people see is computed of those (state.go).
package keeper

// Package belief decides what a node believes of the store, and which peers follow. It does no I/O but for
// Cache.
//
//	Snapshot ──Believe──> Memory ──Rules.Check──> Set
//
// A store that was wiped, restored or replaced does not make the node forget its peers (believe.go). A record
// that would take something from an earlier one is rejected (check.go, accepted.go). Outlook holds both
// (outlook.go), and Cache keeps the Memory on disk for a start without the store (cache.go).
package belief

// Package routecontrol is the side of controllers of networks of type route-hook that they have in common: it
// takes the views of nodes, makes one set of routes out of them, has a Programmer put these in place, and
// answers each node what became of its routes. Where they are put is the Programmer's alone. It keeps nothing
// on disk: nodes give their views again within a minute or so, and until all had the time to, no route is
// removed that an earlier process made.
//
//	views ─PUT─> Controller ─merge─> one set ─> round ─> Programmer: have, want -> calls
//	       <─verdicts───────────────────────────┘
//
// A newcomer reads merge.go (one set of many views), server.go (what nodes ask), lives.go (whose views are
// over, and what that means), rounds.go (when the Programmer is at work, and who waits for it), listen.go
// (flags, which controllers share) and renew.go (certificates and token, which are read anew).
package routecontrol

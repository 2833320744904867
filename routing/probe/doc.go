// Package probe asks the other nodes, through the overlay, whether they answer.
//
// For each way to a peer, which is an overlay address of it, a node knows whether it answers and since when,
// the round trip, the loss in either direction, and the largest inner packet that really passes. Nodes of
// weft exchange small UDP datagrams, whose sequence numbers tell the loss by direction; the kernel of any
// other node answers ICMP echo requests. Nothing of the packets' way waits for any of it, or depends on it.
//
// Core is the pure part: Step(now, event) returns effects, and it has no clock, socket or goroutine. Prober
// is the edge, which owns the sockets. The files, in the order in which to read them: way.go has what is
// asked and what is known of it, wire.go the bytes of a datagram, window.go the loss, pathmtu.go the search
// for the largest packet, turn.go who is asked when, core.go a step, answer.go who is answered, starved.go
// what a node forgets that was itself not run, silence.go what is known of a peer that is silent, and
// change.go what is said of changes. What nodes tell each other of their ways, for weft matrix, is account.go
// on the wire, tell.go where it is told and survey.go where it is gathered. prober_linux.go,
// asking_linux.go, for questions out of turn, and sockets_linux.go are the edge.
package probe

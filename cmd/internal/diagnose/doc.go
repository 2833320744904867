// Package diagnose is the only place that says why one node gets no answer from another. weftd, its probes
// and weft ping observe; weft doctor, ping, peers, top and matrix print what this package makes of that. It
// imports nothing that asks, so that all of them can use it.
//
// A Fact says at which layer the way breaks, and how. Of makes a Finding of it: one Cause if the fact itself
// shows it, as an error of the own kernel does, and else the causes that the fact does not exclude, each with
// the command that tells.
package diagnose

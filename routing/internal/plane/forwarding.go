package plane

import (
	"time"

	"weft/tunnel"
)

// The words of the key RxUDPGROForwarding: what weft does with the underlay device's feature of that name,
// which is the host's: all UDP that the host forwards is coalesced too.
const (
	ForwardingAuto = "auto" // weft turns it on where nothing is joined without, and it helps
	ForwardingOn   = "on"
	ForwardingOff  = "off" // weft leaves the feature alone, and gives back what it turned on
)

// ForwardingWords are the values of the key RxUDPGROForwarding, the default first.
func ForwardingWords() []string { return []string{ForwardingAuto, ForwardingOn, ForwardingOff} }

const (
	// judgedAfter is how many datagrams in bulk it takes to judge, with the feature or without.
	judgedAfter = 8192
	// joinedShare: what is joined counts for nothing below this part of what arrives alone.
	joinedShare = 8
	// What did not help is tried again after triedFirst, and each time twice as late, at most triedLast.
	triedFirst = time.Minute
	triedLast  = time.Hour
)

// forwarding decides about the feature of one link. It is pure but for its own state.
type forwarding struct {
	word   string
	trying bool            // we turned it on a moment ago, and see whether it helps
	since  tunnel.Arrivals // when the present judgement began
	until  time.Time       // no try before
	wait   time.Duration   // after the next try that does not help
	was    bool            // it was on the last time
}

// forwardingSeen is what a decision goes by.
type forwardingSeen struct {
	on       bool // the feature
	ours     bool // we have turned it on
	declined bool // somebody turned it off, and so it stays
	now      time.Time
	arrivals tunnel.Arrivals
}

// forwardingMove is what to do about the feature.
type forwardingMove uint8

const (
	leave       forwardingMove = iota
	turnOn                     // it is off
	giveBack                   // it is on by us: turn it off
	decline                    // somebody turned it off: leave it so from now on
	undecline                  // the operator turned it on again: it is his
	keepTurning                // it is on by us, and it helps: no move, but worth a word
)

// next is what to do about the feature.
func (f *forwarding) next(s forwardingSeen) forwardingMove {
	was := f.was
	f.was = s.on
	switch {
	case s.declined && s.on:
		return undecline
	case s.declined:
		return leave
	case was && !s.on && f.word != ForwardingOff, s.ours && !s.on:
		f.trying = false
		return decline
	case f.word == ForwardingOff && s.ours:
		f.trying, f.was = false, false
		return giveBack
	case f.word == ForwardingOn && !s.on:
		return turnOn
	case f.word != ForwardingAuto, s.on && !f.trying:
		f.since = s.arrivals
		return leave
	}
	alone, joined := s.arrivals.Alone-f.since.Alone, s.arrivals.Joined-f.since.Joined
	if alone+joined < judgedAfter {
		return leave
	}
	f.since = s.arrivals
	helps := joined*joinedShare >= alone
	switch {
	case f.trying && helps:
		f.trying, f.wait = false, 0
		return keepTurning
	case f.trying:
		f.trying, f.wait = false, min(max(2*f.wait, triedFirst), triedLast)
		f.until = s.now.Add(f.wait)
		f.was = false
		return giveBack
	case helps, s.now.Before(f.until):
		return leave
	}
	f.trying = true
	return turnOn
}

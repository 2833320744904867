package plane

import (
	"testing"
	"time"

	"weft/tunnel"
)

// TestForwarding plays what a link's feature and its arrivals go through.
func TestForwarding(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	type turn struct {
		what          string
		after         time.Duration // since the start
		alone, joined uint64        // since the turn before
		set           *bool         // what somebody else does before
		want          forwardingMove
	}
	yes, no := true, false
	for name, c := range map[string]struct {
		word  string
		turns []turn
	}{
		"auto, it helps": {ForwardingAuto, []turn{
			{what: "little traffic", alone: judgedAfter - 1, want: leave},
			{what: "all alone", alone: 1, want: turnOn},
			{what: "too early", joined: 100, alone: 100, want: leave},
			{what: "joined", joined: judgedAfter, want: keepTurning},
			{what: "alone later", alone: 10 * judgedAfter, want: leave},
			{what: "somebody turns it off", set: &no, want: decline},
			{what: "off means off", alone: 10 * judgedAfter, after: 24 * time.Hour, want: leave},
			{what: "somebody turns it on", set: &yes, want: undecline},
			{what: "it is his", alone: 10 * judgedAfter, want: leave},
		}},
		"auto, it does not help": {ForwardingAuto, []turn{
			{what: "all alone", alone: judgedAfter, want: turnOn},
			{what: "still", alone: judgedAfter, want: giveBack},
			{what: "at once again", alone: judgedAfter, want: leave},
			{what: "later", alone: judgedAfter, after: triedFirst, want: turnOn},
			{what: "still", alone: judgedAfter, after: triedFirst, want: giveBack},
			{what: "twice as late", alone: judgedAfter, after: 2*triedFirst + triedFirst - 1, want: leave},
			{what: "then", alone: judgedAfter, after: 3 * triedFirst, want: turnOn},
			{what: "turned off meanwhile", set: &no, want: decline},
		}},
		"auto, the kernel joins": {ForwardingAuto, []turn{
			{what: "joined", joined: judgedAfter, alone: judgedAfter, want: leave},
			{what: "some joined", joined: judgedAfter / joinedShare, alone: judgedAfter, want: leave},
		}},
		"auto, it is on": {ForwardingAuto, []turn{
			{what: "by somebody", set: &yes, alone: judgedAfter, want: leave},
			{what: "and off by him", set: &no, want: decline},
		}},
		"on": {ForwardingOn, []turn{
			{what: "at once", want: turnOn},
			{what: "it does not help", alone: 2 * judgedAfter, want: leave},
			{what: "off means off", set: &no, want: decline},
		}},
		"off": {ForwardingOff, []turn{
			{what: "all alone", alone: judgedAfter, want: leave},
			{what: "on by somebody", set: &yes, want: leave},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := forwarding{word: c.word}
			var s forwardingSeen
			for _, turn := range c.turns {
				if turn.set != nil {
					s.on = *turn.set
				}
				s.now = start.Add(turn.after)
				s.arrivals = tunnel.Arrivals{Alone: s.arrivals.Alone + turn.alone, Joined: s.arrivals.Joined + turn.joined}
				got := f.next(s)
				if got != turn.want {
					t.Fatalf("%s: move %d, want %d", turn.what, got, turn.want)
				}
				switch got {
				case turnOn:
					s.on, s.ours = true, true
				case giveBack:
					s.on, s.ours = false, false
				case decline:
					s.declined = true
				case undecline:
					s.ours, s.declined = false, false
				case leave, keepTurning: // nothing changes
				}
			}
		})
	}
	// What a process before turned on, this one gives back where the word is another now.
	if f := (forwarding{word: ForwardingOff}); f.next(forwardingSeen{on: true, ours: true, now: start}) != giveBack {
		t.Error("not given back")
	}
}

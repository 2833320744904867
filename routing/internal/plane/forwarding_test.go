package plane

import "testing"

// TestForwarding plays what a link's feature goes through.
func TestForwarding(t *testing.T) {
	type turn struct {
		what string
		set  *bool // what somebody else does before
		veth bool
		want forwardingMove
	}
	yes, no := true, false
	for name, c := range map[string]struct {
		word  string
		turns []turn
	}{
		"auto, veth": {ForwardingAuto, []turn{
			{what: "at once", veth: true, want: turnOn},
			{what: "and so it stays", veth: true, want: leave},
			{what: "somebody turns it off", veth: true, set: &no, want: decline},
			{what: "off means off", veth: true, want: leave},
			{what: "somebody turns it on", veth: true, set: &yes, want: undecline},
			{what: "it is his", want: leave},
		}},
		"auto, GRO comes and goes": {ForwardingAuto, []turn{
			{what: "without", want: leave},
			{what: "with", veth: true, want: turnOn},
			{what: "without again", want: giveBack},
			{what: "with again", veth: true, want: turnOn},
		}},
		"auto, it is on": {ForwardingAuto, []turn{
			{what: "by somebody", set: &yes, want: leave},
			{what: "and off by him", set: &no, veth: true, want: decline},
		}},
		"on": {ForwardingOn, []turn{
			{what: "at once", want: turnOn},
			{what: "it stays", want: leave},
			{what: "off means off", set: &no, want: decline},
		}},
		"off": {ForwardingOff, []turn{
			{what: "at once", veth: true, want: leave},
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
				s.veth = turn.veth
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
				case leave: // nothing changes
				}
			}
		})
	}
	// What a process before turned on, this one gives back where the word is another now.
	if f := (forwarding{word: ForwardingOff}); f.next(forwardingSeen{on: true, ours: true, veth: true}) !=
		giveBack {
		t.Error("not given back")
	}
}

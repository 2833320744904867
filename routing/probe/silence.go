package probe

import (
	"fmt"
	"slices"
	"time"
)

// Silence says what of a peer answers, or is heard, while it gives no answer.
type Silence uint8

// The kinds of silence. The first is that of a way that answers, or of which nothing is known.
const (
	NoSilence    Silence = iota
	Unsendable           // this host cannot send to it
	PortRefused          // its kernel says that nothing listens there
	KernelOnly           // its kernel answers through the overlay
	HeardOnly            // what it sends arrives
	UnderlayOnly         // its kernel answers on the underlay
	Nothing              // nothing of it answers
	silences             // how many there are
)

// OwnFirewall is why something could not be sent where a rule for OUTPUT dropped it: the kernel says EPERM
// then.
const OwnFirewall = "a firewall here drops it in OUTPUT (operation not permitted)"

// silence is what of the peer was heard since it fell silent.
func (w *way) silence() Silence {
	since := func(t time.Time) bool { return t.After(w.silent) }
	switch {
	case w.answers != No:
		return NoSilence
	case w.unsent != "" && since(w.unsentAt):
		return Unsendable
	case since(w.refused):
		return PortRefused
	case since(w.echoed):
		return KernelOnly
	case since(w.heard):
		return HeardOnly
	case since(w.underlying):
		return UnderlayOnly
	}
	return Nothing
}

// fact says in words what is wrong with a way; "" if nothing is. It names no cause, which the commands do
// from all that they know (package diagnose).
func (w *way) fact() string {
	switch s := w.silence(); {
	case s >= HeardOnly && w.rejection.At.After(w.silent):
		return fmt.Sprintf("ICMP from %v says %s", w.rejection.By, w.rejection.Says)
	case s == Unsendable:
		return "this host cannot send to it: " + w.unsent
	case s == PortRefused:
		return "its host answers that nobody takes the questions of weftd"
	case s == KernelOnly:
		return "its kernel answers through the overlay, and its weftd does not"
	case s == HeardOnly:
		return "what it sends arrives, and no answer does"
	case s == UnderlayOnly:
		return "its host answers on the underlay, and nothing comes through the overlay"
	case s == Nothing && !w.Under.IsValid():
		return "nothing of it answers"
	case s == Nothing:
		return "nothing of it answers, on the underlay neither"
	case w.lossy:
		return w.losses() + " is lost"
	case w.mtu.hole:
		return fmt.Sprintf("packets of %d bytes pass, and those of %d are lost without a word", w.mtu.passed,
			w.mtu.most)
	}
	return ""
}

// common is the fact that several ways have in common.
func common(ways []*way) string {
	fact := ways[0].fact()
	if slices.ContainsFunc(ways, func(w *way) bool { return w.fact() != fact }) {
		return "not the same of each"
	}
	return fact
}

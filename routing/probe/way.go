package probe

import (
	"net/netip"
	"time"
)

// Way is one overlay address of a peer, which is asked. It is comparable.
type Way struct {
	// Peer is the node's identity, or its subnet if it has none: ways of one Peer are one node's. Name is what
	// people call it.
	Peer, Name string
	// Addr is the address that is asked, and that answers come from.
	Addr netip.Addr
	// Port is where the peer answers questions; 0 for one that does not, whose kernel is asked by ICMP.
	Port uint16
	// Under is the peer's address on the underlay, the zero Addr if unknown.
	Under netip.Addr
	// MTU is the largest inner packet that is sent to the peer, in bytes; 0 if unknown.
	MTU int
}

// Answers says whether a peer answers.
type Answers uint8

// The states. A peer is Unasked until it has answered, or has had the time to.
const (
	Unasked Answers = iota
	Yes
	No
)

// String is the word in weft peers and in its JSON.
func (a Answers) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "unknown"
	}
}

// State is what is known of one way.
type State struct {
	Way
	Answers Answers
	// Since is when Answers became so.
	Since time.Time
	// Answered is when the last answer came, and Heard when anything of the peer last came to the probe; zero
	// for never.
	Answered, Heard time.Time
	// RTT is the smoothed round trip, and MinRTT the shortest of the last ten minutes or so; 0 if none was
	// measured.
	RTT, MinRTT time.Duration
	// Out and In say what became of the datagrams to the peer and of those from it. With ICMP only Out is used,
	// for both.
	Out, In Loss
	// Lossy says that the loss is high enough to be said.
	Lossy bool
	// PathMTU is the largest inner packet that passed, in bytes; 0 if none was tried. Hole says that larger ones
	// up to MTU are lost without a word.
	PathMTU int
	Hole    bool
	// Silence says what of the peer answers, if it does not, and Unsent why this host cannot send to it.
	Silence Silence
	Unsent  string
	// Fact says in words what is wrong; "" if nothing is.
	Fact string
}

// Loss says how many of the last datagrams did not arrive.
type Loss struct{ Lost, Of int }

// Share is the part that was lost, from 0 to 1; 0 if there were none.
func (l Loss) Share() float64 {
	if l.Of == 0 {
		return 0
	}
	return float64(l.Lost) / float64(l.Of)
}

// way is a Way with all that is known of it. The times are zero for never.
type way struct {
	*Way // in the Ways of the last Known

	session uint32    // of our datagrams, whose last number is seq
	mark    uint32    // of the last Known that had it
	due     time.Time // when its turn is
	at      int       // in the queue
	limits  limits

	answers  Answers
	since    time.Time // when answers became so
	answered time.Time
	heard    time.Time
	silent   time.Time // when the first question was sent that has not been answered; zero while all are
	missed   int       // turns since silent

	seq     uint32
	asked   []asked // the last questions; nil before the first
	next    int     // where the next question goes
	pad     int     // the size of the long question that the turn goes on with, 0 for none
	tells   bool    // it gives accounts, as it last said
	out, in window  // our datagrams as the peer got them, and the peer's
	counted uint32  // the first of our numbers that counts for the loss
	lossy   bool
	told    int       // losses in both windows when they were last looked at
	closer  time.Time // until when it is asked more often, since something was lost

	rtt, minRTT time.Duration
	minUntil    time.Time // when minRTT begins anew
	mtu         search
	// narrow is what this host knows that the way carries, less than MTU, and until when that counts; 0 for
	// nothing.
	narrow      int
	narrowUntil time.Time
	// doubts is how often the usual size is still to be tried, since narrow was claimed. refuted is until when no
	// claim counts, since one was not true.
	doubts  int
	refuted time.Time

	refused    time.Time // when its host last said that nothing listens on its port
	rejection  Rejection // what ICMP last said of the overlay's datagrams to its host
	nonces     [2]uint64 // of the last echo requests, through the overlay and on the underlay
	echoed     time.Time // when its kernel last answered an echo request through the overlay
	underlying time.Time // and on the underlay
	unsent     string    // why a question could not be sent, at unsentAt
	unsentAt   time.Time

	said said
}

// Rejection is a message of ICMP: By says it, in words as "port unreachable".
type Rejection struct {
	At   time.Time
	By   netip.Addr
	Says string
}

// said is what was last said of a way.
type said struct {
	answers     Answers
	lossy, hole bool
}

// asked is a question on its way.
type asked struct {
	nonce uint64
	at    time.Time
	size  int // of the inner packet; 0 for one that is not for the path MTU
	seq   uint32
}

// keptFor is for how many turns questions without an answer are kept.
const keptFor = 4

// isEcho reports whether the way is asked by ICMP.
func (w *way) isEcho() bool { return w.Port == 0 }

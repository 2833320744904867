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

// way is a Way with all that is known of it. There may be ten thousand, so it is small: fields of a size
// stand together.
type way struct {
	*Way // in the Ways of the last Known

	due      moment // when its turn is
	since    moment // when answers became so
	answered moment
	heard    moment
	silent   moment // when the first question was sent that has not been answered; zero while all are
	closer   moment // until when it is asked more often, since something was lost
	minUntil moment // when minRTT begins anew
	carrying moment // when packets that are none of probes were last seen to arrive
	// narrowUntil is how long narrow counts, and refuted how long no claim does, since one was not true.
	narrowUntil, refuted moment
	stuckAt              moment // when stuck was seen to grow
	refused              moment // when its host last said that nothing listens on its port
	// when ICMP last said that the overlay\'s datagrams do not reach its host, as rejection says
	rejected   moment
	echoed     moment // when its kernel last answered an echo request through the overlay
	under      moment // and on the underlay
	unsentAt   moment
	answerFrom moment // when answerable was counted
	provedFrom moment // when unproved was
	tellFrom   moment // when tellable was

	rtt, minRTT time.Duration
	stuck       uint64    // the data plane's count of packets to it that the kernel refused
	rx          uint64    // the data plane's count of packets from it
	nonces      [2]uint64 // of the last echo requests, through the overlay and on the underlay
	rejection   *Rejection
	unsent      string  // why a question could not be sent, at unsentAt
	asked       []asked // the last questions, by number; nil before the first
	out, in     window  // our datagrams as the peer got them, and the peer's
	mtu         search

	session uint32 // of our datagrams, whose last number is seq
	seq     uint32
	counted uint32 // the first of our numbers that counts for the loss
	mark    uint32 // of the last Known that had it
	probes  uint32 // packets of probes from it since rx was set
	at      int32  // in the queue
	next    int32  // where the next question goes
	missed  int32  // turns since silent
	skipped int32  // turns in a row that were left out, since its packets arrive
	told    int32  // losses in both windows when they were last looked at
	// what this host knows that the way carries, less than MTU; 0 if it knows of nothing, or not any more
	narrow     int32
	answerable int32 // answers that it may get at once
	unproved   int32 // the same for questions that do not prove that they are its
	tellable   int32 // accounts that it may get at once

	answers Answers
	lossy   bool
	tries   uint8 // how often the usual size is still to be tried, since narrow was claimed
	known   bool  // rx was set
	pad     bool  // the turn goes on with a long question
	tells   bool  // it gives accounts, as it last said
	said    said
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
	at    moment
	size  int32 // of the inner packet; 0 for one that is not for the path MTU
	seq   uint32
}

// keptFor is for how many turns questions without an answer are kept.
const keptFor = 4

// isEcho reports whether the way is asked by ICMP.
func (w *way) isEcho() bool { return w.Port == 0 }

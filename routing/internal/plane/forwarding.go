package plane

// The words of the key RxUDPGROForwarding: what weft does with the underlay device's feature of that name,
// which is the host's: all UDP that the host forwards is coalesced too.
const (
	ForwardingAuto = "auto" // weft turns it on where the kernel joins nothing without
	ForwardingOn   = "on"
	ForwardingOff  = "off" // weft leaves the feature alone, and gives back what it turned on
)

// ForwardingWords are the values of the key RxUDPGROForwarding, the default first.
func ForwardingWords() []string { return []string{ForwardingAuto, ForwardingOn, ForwardingOff} }

// forwarding decides about the feature of one link. It is pure but for its own state.
type forwarding struct {
	word string
	was  bool // it was on the last time
}

// forwardingSeen is what a decision goes by.
type forwardingSeen struct {
	on       bool // the feature
	ours     bool // we have turned it on
	declined bool // somebody turned it off, and so it stays
	// veth says that the link is one end of a veth pair, and has GRO. Such a link hands the frames of sockets
	// to GRO only if it has the feature. Every other link with GRO joins datagrams for our sockets without, or
	// not at all.
	veth bool
}

// forwardingMove is what to do about the feature.
type forwardingMove uint8

const (
	leave     forwardingMove = iota
	turnOn                   // it is off
	giveBack                 // it is on by us: turn it off
	decline                  // somebody turned it off: leave it so from now on
	undecline                // the operator turned it on again: it is his
)

// next is what to do about the feature.
func (f *forwarding) next(s forwardingSeen) forwardingMove {
	was := f.was
	f.was = s.on
	wanted := f.word == ForwardingOn || f.word == ForwardingAuto && s.veth
	switch {
	case s.declined && s.on:
		return undecline
	case s.declined:
		return leave
	case was && !s.on && f.word != ForwardingOff, s.ours && !s.on:
		return decline
	case s.ours && !wanted:
		f.was = false
		return giveBack
	case wanted && !s.on:
		return turnOn
	}
	return leave
}

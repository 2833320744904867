package port

// EventKind is the value of the attribute event in a log line. Scripts rely on it.
// The comments become docs/reference/events.md.
type EventKind string

const (
	// peers or their next hops do not answer (`likely` is the cause); ICMP errors, the last sent `by` this
	// address, report for at least eight seconds that datagrams do not reach a peer; or peers answer again
	EventPeerUnanswering EventKind = "peer_unanswering"
	// a peer filled the receive queue that all peers share and is held back, or is no longer
	EventPeerHeldBack EventKind = "peer_held_back"
	// how superpackets are sent, and why
	EventOutletChosen EventKind = "outlet_chosen"
	// the kernel rejected an offload, or what it sends arrives corrupted; weft continues without it
	EventOffloadLost EventKind = "offload_lost"
	// the path MTU to a peer was lowered, or a claim about it was wrong
	EventPathMTU EventKind = "path_mtu"
)

package port

// EventKind is the value of the attribute event in a log line. Scripts rely on it.
// The comments become docs/reference/events.md.
type EventKind string

const (
	// peers, or their next hops, do not answer, with the `likely` cause; ICMP says, `by` whom, for eight
	// seconds or longer, that datagrams do not reach a peer; or peers answer again
	EventPeerUnanswering EventKind = "peer_unanswering"
	// a peer filled the queue that others share, or ceased to
	EventPeerHeldBack EventKind = "peer_held_back"
	// how superpackets leave, and why
	EventOutletChosen EventKind = "outlet_chosen"
	// the kernel refused an offload, or what it sends arrives broken, and weft goes on without
	EventOffloadLost EventKind = "offload_lost"
	// the path MTU to a peer was lowered, or a claim about it was wrong
	EventPathMTU EventKind = "path_mtu"
)

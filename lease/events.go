package lease

// EventKind is what a line of the log tells, as its attribute event. Scripts rely on it.
// The comments become docs/reference/events.md. It is no Event, which Core takes in.
type EventKind string

const (
	// the node got its subnet, and `how`
	EventAcquired EventKind = "lease_acquired"
	// where the node's lease stands: `state` is held, unconfirmed, expired, lost or waiting, with the `cause`
	EventState EventKind = "lease_state"
	// somebody had deleted the node's record or written over it, and it was put back
	EventPutBack EventKind = "lease_put_back"
	// another process has the node's identity or its subnet, or its owner is silent
	EventContested EventKind = "lease_contested"
	// the node has another subnet, or bridges of pods have one that was its
	EventSubnetChanged EventKind = "subnet_changed"
	// the store, or the API server, does not answer
	EventStoreLost EventKind = "store_lost"
	// the store, or the API server, answers again
	EventStoreBack EventKind = "store_back"
	// peers are gone from a store that is not believed
	EventRemovalsDoubted EventKind = "removals_disbelieved"
	// annotations or the condition of the Node were written
	EventKubernetesStatus EventKind = "kubernetes_status"
)

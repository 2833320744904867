package lease

import "time"

// State is where a node's own lease stands.
type State uint8

// The states. The zero value is a bug.
const (
	_ State = iota
	// Acquiring: no lease yet.
	Acquiring
	// Unconfirmed: serving the cached lease; the store has not been heard.
	Unconfirmed
	// Held: the store has our record.
	Held
	// Expired: our record has ended, or is gone, and no other owner has been seen.
	// We go on serving.
	Expired
	// Lost: another owner has the subnet; we have given it up and seek another.
	Lost
	// Waiting: a record stands where ours should, whose owner lives, or is being asked for; or
	// ours is written over again and again. What we hold we go on serving.
	Waiting
)

func (s State) String() string {
	switch s {
	case Acquiring:
		return "acquiring"
	case Unconfirmed:
		return "unconfirmed"
	case Held:
		return "held"
	case Expired:
		return "expired"
	case Lost:
		return "lost"
	case Waiting:
		return "waiting"
	}
	return "invalid"
}

// Status is a keeper's state at one moment, for readiness, metrics and operators.
type Status struct {
	State State
	// Own is our record; its Subnets are zero while we have none.
	Own Record
	// Err is why the state is not Held, or what the last write met; nil if all is well.
	// It may be a *RivalError, *ContestError, *TakenError, *IPv6OnlyError, or wrap ErrOutOfSubnets.
	Err error
	// Notes say why our subnet is not the one that we had before.
	Notes []string
	// StoreSeen is when the store last answered, if only that nothing has changed; zero before
	// the first time.
	StoreSeen time.Time
	// StoreTook is how long the store took to answer; zero if that is not known.
	StoreTook time.Duration
	// StoreErr is why the store does not answer; nil while it does.
	StoreErr error
	// StoreRefuses says that the store answered, and that StoreErr is its refusal: its answers
	// keep StoreSeen fresh, so that StoreSince counts.
	StoreRefuses bool
	// StoreSince is when StoreErr began, where that is known; zero if it is not.
	StoreSince time.Time
	// ClusterID and Revision are the store's.
	ClusterID string
	Revision  int64
	// CacheErr is why the state is not saved for a start without the store; nil if it is.
	CacheErr error
	// Alarm says why removals are not believed; "" if none are.
	Alarm string
	// ConfigErr says that the store's configuration is gone or not good, or, as a
	// *ConfigChangedError, that it is not the one in use. StoreConfig is its text, nil for none;
	// ConfigSeen says that the store has been asked for it.
	ConfigErr   error
	StoreConfig []byte
	ConfigSeen  bool
	// Peers is how many records passed the checks.
	Peers int
	// Rejected are the records that did not.
	Rejected []Rejected
}

// Ready reports whether the lease is held and not expired.
func (s Status) Ready() bool { return s.State == Held }

// RejectedCount counts the rejected records of each reason. Reasons without any are absent.
func (s Status) RejectedCount() map[RejectReason]int {
	n := map[RejectReason]int{}
	for _, r := range s.Rejected {
		n[r.Reason]++
	}
	return n
}

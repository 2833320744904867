package lease

import (
	"context"
	"errors"
	"time"
)

// ErrConflict says that a compare-and-swap found another revision than the caller's.
var ErrConflict = errors.New("the record changed in the store")

// ErrRefused means that the store answers, and takes no write: it has no room, or its rules forbid the write.
var ErrRefused = errors.New("the store refuses to write")

// Snapshot is everything that the store holds under our prefix, at one revision.
type Snapshot struct {
	// ClusterID tells one store from another, so that a store that was wiped or
	// replaced is not believed when it says that peers are gone.
	ClusterID string
	// Revision is the store's revision at which the snapshot was read.
	Revision int64
	// Config is the raw <prefix>/config; nil if there is none.
	Config []byte
	// Records are those that parsed, in key order. They are shared with other snapshots, and never changed.
	Records []*Record
	// Bad are those that did not parse.
	Bad []Rejected
}

// Heard is when a store last answered, and how long it takes to answer. Either is zero as long as it is not
// known.
type Heard struct {
	At   time.Time
	Took time.Duration
}

// Store is where leases live. Every method is safe for concurrent use and
// returns when ctx ends. Writes are compare-and-swap on the record's revision.
type Store interface {
	// Snapshot reads config and every record at one revision.
	Snapshot(ctx context.Context) (Snapshot, error)
	// Put writes a record if its revision in the store is ifRevision (0: the key
	// must not exist) and returns the new revision. ttl 0 writes a record that does
	// not expire. The error is ErrConflict if the comparison failed.
	Put(ctx context.Context, s Subnets, a Attrs, ttl time.Duration, ifRevision int64) (revision int64, err error)
	// Replace puts a new record, whose key must not exist, in the place of old in one transaction: no
	// reader sees both or neither. The error is ErrConflict if old is not at oldRevision any more.
	Replace(ctx context.Context, old Subnets, oldRevision int64, s Subnets, a Attrs,
		ttl time.Duration) (revision int64, err error)
	// Delete removes a record if its revision is ifRevision, else returns ErrConflict.
	Delete(ctx context.Context, s Subnets, ifRevision int64) error
	// Remaining reports how long the record lives without renewal; 0 for a reservation.
	Remaining(ctx context.Context, s Subnets) (time.Duration, error)
	// Watch sends a complete snapshot to changed now and after every change,
	// debounced, until ctx ends. It reconnects by itself with back-off, re-lists after
	// compaction or restart of the store and at least every few minutes, and calls lost
	// with the reason whenever the store stops answering.
	Watch(ctx context.Context, changed func(Snapshot), lost func(error)) error
	// Heard is when the store last answered anything. While Watch runs and the store answers, it is seconds old
	// at most, also when nothing changes.
	Heard() Heard
	// Tell leaves m for the identity m.To, in the place of what m.From said to it before. The error
	// wraps ErrMute if that is not for this node to do.
	Tell(ctx context.Context, m Message) error
	// Listen hands on every message for node, those that lie there first, until ctx ends. It
	// reconnects by itself.
	Listen(ctx context.Context, node string, told func(Message)) error
	// CreateConfig writes <prefix>/config if there is none.
	CreateConfig(ctx context.Context, config []byte) error
}

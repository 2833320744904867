package keeper

import (
	"context"
	"time"

	"weft/lease"
)

// Operation is a request of a Call to the store. It is one of the types below, each a method of Store.
type Operation interface {
	// Do asks s, and returns what it said; the number is the caller's. It ends when ctx does.
	Do(ctx context.Context, s lease.Store) Result
}

// ReadStore reads everything.
type ReadStore struct{}

// WriteRecord is Store.Put: it writes a record of ours if what is under its key is at IfRevision, or
// if nothing is there and IfRevision is 0.
type WriteRecord struct {
	Subnets    lease.Subnets
	Attrs      lease.Attrs
	TTL        time.Duration // 0 for a record that does not end
	IfRevision int64
}

// ReplaceRecord is Store.Replace: it puts a record of ours, whose key must not exist, in the place of
// Old, which is ours and at OldRevision.
type ReplaceRecord struct {
	Old         lease.Subnets
	OldRevision int64
	Subnets     lease.Subnets
	Attrs       lease.Attrs
	TTL         time.Duration // 0 for a record that does not end
}

// DeleteRecord is Store.Delete, of a record of ours.
type DeleteRecord struct {
	Subnets    lease.Subnets
	IfRevision int64
}

// ReadRemaining is Store.Remaining: how long does another's record live?
type ReadRemaining struct{ Subnets lease.Subnets }

// WriteConfig is Store.CreateConfig, for a store that has none.
type WriteConfig struct{ Config []byte }

// SendMessage is Store.Tell: it asks whether the owner of a record lives, or says that we do.
type SendMessage struct{ Message lease.Message }

func (ReadStore) Do(ctx context.Context, s lease.Store) (r Result) {
	r.Snapshot, r.Err = s.Snapshot(ctx)
	return r
}

func (o WriteRecord) Do(ctx context.Context, s lease.Store) (r Result) {
	r.Revision, r.Err = s.Put(ctx, o.Subnets, o.Attrs, o.TTL, o.IfRevision)
	return r
}

func (o ReplaceRecord) Do(ctx context.Context, s lease.Store) (r Result) {
	r.Revision, r.Err = s.Replace(ctx, o.Old, o.OldRevision, o.Subnets, o.Attrs, o.TTL)
	return r
}

func (o DeleteRecord) Do(ctx context.Context, s lease.Store) Result {
	return Result{Err: s.Delete(ctx, o.Subnets, o.IfRevision)}
}

func (o ReadRemaining) Do(ctx context.Context, s lease.Store) (r Result) {
	r.Remaining, r.Err = s.Remaining(ctx, o.Subnets)
	return r
}

func (o WriteConfig) Do(ctx context.Context, s lease.Store) Result {
	return Result{Err: s.CreateConfig(ctx, o.Config)}
}

func (o SendMessage) Do(ctx context.Context, s lease.Store) Result {
	return Result{Err: s.Tell(ctx, o.Message)}
}

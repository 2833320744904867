package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/lease"
)

// Put implements lease.Store. Each write with a ttl is bound to an etcd lease of its
// own, as flannel does it; the lease of what it replaces is revoked afterwards if nothing else is
// bound to it. A ttl is rounded up to whole seconds.
func (s *Store) Put(ctx context.Context, sn lease.Subnets, a lease.Attrs, ttl time.Duration,
	ifRevision int64) (revision int64, err error) {
	key, err := s.keys.record(sn)
	if err != nil {
		return 0, err
	}
	return s.write(ctx, key, a, ttl, []clientv3.Cmp{at(key, ifRevision)})
}

// Replace implements lease.Store. A watcher gets the deletion first, both at one revision: a flannel
// that removes what it has of the old record does not remove what it made for the new one.
func (s *Store) Replace(ctx context.Context, old lease.Subnets, oldRevision int64, sn lease.Subnets,
	a lease.Attrs, ttl time.Duration) (revision int64, err error) {
	from, err := s.keys.record(old)
	if err != nil {
		return 0, err
	}
	key, err := s.keys.record(sn)
	if err != nil {
		return 0, err
	}
	return s.write(ctx, key, a, ttl, []clientv3.Cmp{at(from, oldRevision), at(key, 0)},
		clientv3.OpDelete(from, clientv3.WithPrevKV()))
}

// write puts a record after the operations first, all in one transaction, if every comparison holds.
func (s *Store) write(ctx context.Context, key string, a lease.Attrs, ttl time.Duration, cmps []clientv3.Cmp,
	first ...clientv3.Op) (revision int64, err error) {
	value, err := lease.EncodeAttrs(a)
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", key, err)
	}
	// Time is left to look whether a write was done whose answer is lost.
	third, cancel := share(ctx, 3)
	defer cancel()
	id, err := s.grant(third, ttl)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", key, asRefused(err))
	}
	put := clientv3.OpPut(key, string(value), clientv3.WithPrevKV())
	if id != clientv3.NoLease {
		put = clientv3.OpPut(key, string(value), clientv3.WithPrevKV(), clientv3.WithLease(id))
	}
	var left []clientv3.LeaseID
	half, cancel := share(ctx, 2)
	defer cancel()
	err = s.request(half, func(ctx context.Context, c *clientv3.Client) error {
		revision, left, err = swap(ctx, c, cmps, append(slices.Clip(first), put)...)
		return err
	})
	if err == nil {
		s.expiries.written(id, time.Now().Add(ttl))
		s.revokeLater(left...)
		return revision, nil
	}
	if id != clientv3.NoLease {
		if rev, done := s.settle(ctx, key, id, err); done {
			return rev, nil
		}
	}
	return 0, fmt.Errorf("write %s: %w", key, asRefused(err))
}

// refused is what etcd says of a write that it does not take.
type refused struct{ error }

func (e refused) Unwrap() error      { return e.error }
func (refused) Is(target error) bool { return target == lease.ErrRefused }

func asRefused(err error) error {
	if errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, rpctypes.ErrPermissionDenied) {
		return refused{err}
	}
	return err
}

// Delete implements lease.Store. A record that is gone already is a conflict.
func (s *Store) Delete(ctx context.Context, sn lease.Subnets, ifRevision int64) error {
	key, err := s.keys.record(sn)
	if err != nil {
		return err
	}
	var left []clientv3.LeaseID
	err = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, left, err = swap(ctx, c, []clientv3.Cmp{at(key, ifRevision)},
			clientv3.OpDelete(key, clientv3.WithPrevKV()))
		return err
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	s.revokeLater(left...)
	return nil
}

// share returns ctx with the nth part of the time that it has left.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(end)/time.Duration(n))
	}
	return context.WithCancel(ctx)
}

// at holds if the modification revision of key is revision; that of an absent key is 0.
func at(key string, revision int64) clientv3.Cmp {
	if revision == 0 {
		return clientv3.Compare(clientv3.Version(key), "=", 0) // as flannel creates
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

// swap does the operations, in one transaction, if every comparison holds. left are the leases that
// what was replaced or deleted was bound to.
func swap(ctx context.Context, c *clientv3.Client, cmps []clientv3.Cmp, ops ...clientv3.Op) (revision int64,
	left []clientv3.LeaseID, err error) {
	resp, err := c.Txn(ctx).If(cmps...).Then(ops...).Commit()
	switch {
	case err != nil:
		return 0, nil, err
	case !resp.Succeeded:
		return 0, nil, lease.ErrConflict
	}
	for _, r := range resp.Responses {
		was := r.GetResponseDeleteRange().GetPrevKvs()
		if kv := r.GetResponsePut().GetPrevKv(); kv != nil {
			was = append(was, kv)
		}
		for _, kv := range was {
			if kv.Lease != 0 {
				left = append(left, clientv3.LeaseID(kv.Lease))
			}
		}
	}
	return resp.Header.Revision, left, nil
}

// revokeWithin bounds the revocations after one write.
const revokeWithin = 2 * time.Second

// revokeLater revokes those of ids that no key is bound to. It is a courtesy: nothing depends on it, and so
// no write waits for it. Only Close does.
func (s *Store) revokeLater(ids ...clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) == 0 || s.closing {
		return
	}
	s.revoking.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), revokeWithin)
		defer cancel()
		s.revokeUnused(ctx, ids)
	})
}

// revokeUnused revokes those of ids that no key is bound to: etcd would keep each for the rest of its
// 24 hours. Revoking deletes what is bound, so one that still has keys is left alone, and so is one
// whose keys we are not shown.
func (s *Store) revokeUnused(ctx context.Context, ids []clientv3.LeaseID) {
	for _, id := range ids {
		err := s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
			resp, err := c.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
			if err != nil || resp.TTL <= 0 || len(resp.Keys) > 0 {
				return err
			}
			_, err = c.Revoke(ctx, id)
			return err
		})
		if err != nil {
			s.log.Debug("etcd: a lease that nothing is bound to stays until it ends", "lease", id, "reason", err)
			return
		}
	}
}

// grant returns a new etcd lease, or none for a record that does not expire.
func (s *Store) grant(ctx context.Context, ttl time.Duration) (id clientv3.LeaseID, err error) {
	if ttl <= 0 {
		return clientv3.NoLease, nil
	}
	err = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		if err != nil {
			return fmt.Errorf("grant a lease of %s: %w", ttl, err)
		}
		id = resp.ID
		return nil
	})
	return id, err
}

// settle clears up after a write that returned cause. If etcd refused the write, its
// lease is revoked later. If the answer was lost, the write may have happened: then the
// record says so, and done is true. When that cannot be learnt either, the lease is
// left alone, since revoking it would delete the record if the write did happen.
func (s *Store) settle(ctx context.Context, key string, id clientv3.LeaseID, cause error) (revision int64,
	done bool) {
	if !lostAnswer(cause) {
		s.revokeLater(id)
		return 0, false
	}
	_ = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, key)
		if err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].Lease == int64(id) {
			revision, done = resp.Kvs[0].ModRevision, true
		}
		return err
	})
	return revision, done
}

// lostAnswer reports whether a write that failed with err may have been done all the same.
func lostAnswer(err error) bool {
	if errors.Is(err, lease.ErrConflict) {
		// Unless the client library repeated our own write after a lost answer, which
		// it does not do for writes.
		return false
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound,
		codes.ResourceExhausted, codes.Unauthenticated, codes.OutOfRange, codes.Unimplemented:
		return false
	default:
		return true
	}
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

// Messages lie under <prefix>/weft/mail/<identity>/<process>, beside what flannel reads, each on
// an etcd lease of lease.MessageTTL.

// A listener that fails tries again after mailRetryMin, and later and later; one that is not allowed
// to listen after mailRetryMax. Every mailAnew it starts over, since the library's watcher waits for
// ever for the revision that a restored store has not reached yet.
const (
	mailRetryMin = time.Second
	mailRetryMax = 5 * time.Minute
	mailAnew     = 5 * time.Minute
)

// mail is the folder of an identity, which has no slash in it.
func (k keys) mail(node string) string { return path.Join(k.prefix, "weft", "mail", node) + "/" }

// Tell implements lease.Store.
func (s *Store) Tell(ctx context.Context, m lease.Message) error {
	value, err := lease.EncodeMessage(m)
	if err != nil {
		return err
	}
	id, err := s.grant(ctx, lease.MessageTTL)
	if err == nil {
		err = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, s.keys.mail(m.To)+m.From, string(value), clientv3.WithLease(id))
			return err
		})
	}
	switch {
	case err == nil:
		return nil
	case denied(err):
		return fmt.Errorf("%w: %w", lease.ErrMute, err)
	}
	return fmt.Errorf("leave a message for %q: %w", m.To, err)
}

// denied reports whether etcd's role for us does not have the key.
func denied(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) }

// Listen implements lease.Store. A role that has only what flannel needs hears nothing.
func (s *Store) Listen(ctx context.Context, node string, told func(lease.Message)) error {
	seen := int64(0) // the newest message handed on
	for retry := mailRetryMin; ; {
		began := time.Now()
		err := s.listen(ctx, s.keys.mail(node), &seen, func(kv *mvccpb.KeyValue) {
			m, err := lease.DecodeMessage(node, kv.Value)
			if err == nil && strings.HasSuffix(string(kv.Key), "/"+m.From) {
				told(m)
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case errors.Is(err, errAnew):
			continue
		case denied(err):
			retry = mailRetryMax
		case time.Since(began) > mailRetryMax/2:
			retry = mailRetryMin
		}
		s.log.Debug("etcd: messages are not heard", "cause", err, "retry", retry)
		select {
		case <-time.After(jitter(retry)):
		case <-ctx.Done():
			return ctx.Err()
		}
		retry = min(2*retry, mailRetryMax)
	}
}

// errAnew ends a listener that is to start over.
var errAnew = errors.New("the watch is made anew")

// listen hands on what lies in the folder and is newer than seen, and then what comes.
func (s *Store) listen(ctx context.Context, folder string, seen *int64, hand func(*mvccpb.KeyValue)) error {
	var next int64
	err := s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, folder, clientv3.WithPrefix(), clientv3.WithLimit(mailMost))
		if err != nil {
			return fmt.Errorf("read %s: %w", folder, err)
		}
		if resp.Header.Revision < *seen { // another store, or an older one
			*seen = 0
		}
		next = resp.Header.Revision + 1
		for _, kv := range resp.Kvs {
			if kv.ModRevision > *seen {
				hand(kv)
			}
		}
		*seen = resp.Header.Revision
		return nil
	})
	if err != nil {
		return err
	}
	c, err := s.conn(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(clientv3.WithRequireLeader(ctx), jitter(mailAnew), errAnew)
	defer cancel()
	for resp := range c.Watch(ctx, folder, clientv3.WithPrefix(), clientv3.WithRev(next),
		clientv3.WithFilterDelete()) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", folder, err)
		}
		for _, e := range resp.Events {
			hand(e.Kv)
			*seen = max(*seen, e.Kv.ModRevision)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return fmt.Errorf("watch %s: it ended", folder)
}

// mailMost is how many messages of one identity are read at once.
const mailMost = 64

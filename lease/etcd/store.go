// Package etcd keeps leases in etcd v3, in flannel's layout and to the letter:
//
//	<prefix>/config            the network configuration
//	<prefix>/subnets/<subnets> one record per node, bound to an etcd lease of 24 h
//
// Reads of the records take the range that flannel takes, every key that begins
// with <prefix>/subnets, so that what would disturb flannel is seen here too.
//
// A watch goes: list at one revision → watch from the next → debounce → complete
// snapshot. It owns its gRPC stream instead of using the client library's watcher,
// which resumes by itself: silently, and against a store that was wiped or restored
// it then waits for a revision that is years away.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

// Errors that callers can test for, beside lease.ErrConflict.
var (
	// ErrClosed says that the Store was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("no such record in the store")
)

// Store is a lease.Store in etcd. It is safe for concurrent use.
type Store struct {
	cfg      atomic.Pointer[resolved] // never nil; Reload replaces it
	keys     keys
	log      *slog.Logger
	expiries expiries

	heard atomic.Pointer[lease.Heard] // the last answer; nil before the first

	dialing chan struct{} // held while a client is made; a channel, so that waiting ends with ctx
	mu      sync.Mutex    // protects what follows, never held during I/O
	cur     *clientv3.Client
	former  *clientv3.Client // the one before cur, until what it was asked has been answered; nil for none
	moved   chan struct{}    // closed when cur takes the place of another client
	closing bool             // no revocation begins any more
	closed  bool

	revoking sync.WaitGroup // the revocations under way
}

var _ lease.Store = (*Store)(nil)

// New returns a Store for a Config that passes its Check. It does not connect: the
// first request does. The caller closes the Store.
func New(cfg Config) (*Store, error) {
	r, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	s := &Store{keys: newKeys(r.Prefix), log: r.Logger, dialing: make(chan struct{}, 1),
		moved: make(chan struct{})}
	s.cfg.Store(&r)
	return s, nil
}

// config returns the configuration in use. The caller does not change it.
func (s *Store) config() *resolved { return s.cfg.Load() }

// Endpoints returns the URLs in use. The caller owns the slice.
func (s *Store) Endpoints() []string { return append([]string(nil), s.config().Endpoints...) }

// Close ends the connection, once the leases of what was replaced have been revoked. Requests under way
// fail; a Watch goes on failing until its context ends.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.revoking.Wait()
	s.mu.Lock()
	c, former := s.cur, s.former
	s.cur, s.former, s.closed = nil, nil, true
	s.mu.Unlock()
	var errs []error
	for _, c := range []*clientv3.Client{c, former} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// request connects if need be and calls do with a context that ends after RequestTimeout.
func (s *Store) request(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.config().RequestTimeout)
	defer cancel()
	ctx, fault := withConnFault(ctx)
	c, err := s.conn(ctx)
	if err == nil {
		err = do(ctx, c)
	}
	if err == nil || errors.Is(err, lease.ErrConflict) || errors.Is(err, ErrNotFound) {
		s.answered(s.Heard().Took)
	}
	return s.plainly(fault.explain(err))
}

// answered notes that etcd has just said something, and how long it takes for that.
func (s *Store) answered(took time.Duration) {
	s.heard.Store(&lease.Heard{At: time.Now(), Took: took})
}

// Heard implements lease.Store. A watch asks etcd for a sign of life whenever it is silent for
// Config.PingEvery, and measures the answer.
func (s *Store) Heard() lease.Heard {
	if h := s.heard.Load(); h != nil {
		return *h
	}
	return lease.Heard{}
}

// Snapshot implements lease.Store. Records carry Expires only where it is already
// known: etcd tells it per lease, and a snapshot does not wait for thousands of answers.
func (s *Store) Snapshot(ctx context.Context) (lease.Snapshot, error) {
	v := newView(s.keys)
	if err := s.list(ctx, v); err != nil {
		return lease.Snapshot{}, err
	}
	return v.snapshot(&s.expiries), nil
}

// Config reads the network configuration, nil if there is none, and says at which revision of the store. The
// read is linearizable: it sees every write before it, also another node's.
func (s *Store) Config(ctx context.Context) (config []byte, revision int64, err error) {
	err = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, s.keys.config)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.keys.config, err)
		}
		for _, kv := range resp.Kvs {
			config = append([]byte{}, kv.Value...) // empty is not absent
		}
		revision = resp.Header.Revision
		return nil
	})
	return config, revision, err
}

// Remaining implements lease.Store. The error is ErrNotFound if there is no such record.
func (s *Store) Remaining(ctx context.Context, sn lease.Subnets) (left time.Duration, err error) {
	key, err := s.keys.record(sn)
	if err != nil {
		return 0, err
	}
	err = s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		if len(resp.Kvs) == 0 {
			return fmt.Errorf("read %s: %w", key, ErrNotFound)
		}
		id := resp.Kvs[0].Lease
		if id == 0 {
			return nil
		}
		if left, err = timeToLive(ctx, c, id); err != nil {
			return fmt.Errorf("expiry of %s: %w", key, err)
		}
		if left <= 0 { // its lease ended between the two reads
			return fmt.Errorf("expiry of %s: %w", key, ErrNotFound)
		}
		return nil
	})
	return left, err
}

// CreateConfig implements lease.Store. It is not an error if there is a config already.
func (s *Store) CreateConfig(ctx context.Context, config []byte) error {
	return s.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.Version(s.keys.config), "=", 0)).
			Then(clientv3.OpPut(s.keys.config, string(config))).
			Commit()
		if err != nil {
			return fmt.Errorf("create %s: %w", s.keys.config, err)
		}
		return nil
	})
}

func clusterID(id uint64) string { return strconv.FormatUint(id, 16) }

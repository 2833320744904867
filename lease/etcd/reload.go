package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// errMoved says that another client has taken the place of the one whose stream it was.
var errMoved = errors.New("the connection is another one")

// Reload applies the endpoints, the user and the files of cfg, which it reads again. It makes a connection
// with them and asks it for something before it replaces the one in use. If only the old one works, nothing
// changes, and the error has the reason. Requests that run continue. If cfg and its files are in use already,
// changed is false, and Reload makes no connection. The prefix cannot change.
func (s *Store) Reload(ctx context.Context, cfg Config) (changed bool, err error) {
	r, err := cfg.resolve()
	if err != nil {
		return false, err
	}
	if r.Prefix != s.keys.prefix {
		return false, fmt.Errorf("etcd prefix %s: it is %s as long as this store is open", r.Prefix, s.keys.prefix)
	}
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	s.mu.Lock()
	before, closed := s.cur, s.closed
	s.mu.Unlock()
	was := s.config()
	switch {
	case closed:
		return false, ErrClosed
	case was.digest() == r.digest() && was.read == r.read:
		return false, nil
	case before == nil: // the next request connects
		s.cfg.Store(&r)
		return true, nil
	}
	next, err := dial(ctx, &r)
	if err == nil {
		err = s.try(ctx, next, &r)
	}
	stays := err != nil && s.try(ctx, before, was) == nil
	if ctx.Err() != nil { // nothing is known of either
		stays, err = true, context.Cause(ctx)
	}
	if stays {
		if next != nil {
			_ = next.Close()
		}
		return false, fmt.Errorf("%w; the connection in use stays", plainly(&r, err))
	}
	if next == nil { // neither works: the next request makes a client
		s.cfg.Store(&r)
		s.replace(nil, r.RequestTimeout)
		return true, nil
	}
	s.cfg.Store(&r)
	s.replace(next, r.RequestTimeout)
	return true, nil
}

// try asks c for something that every role may read. It leaves half of the time that ctx has to who tries
// another.
func (s *Store) try(ctx context.Context, c *clientv3.Client, r *resolved) error {
	limit := r.RequestTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, fault := withConnFault(ctx)
	_, err := c.Get(ctx, s.keys.config, clientv3.WithCountOnly())
	return fault.explain(err)
}

// replace puts next in the place of the client in use. That is closed once its requests have ended, which
// takes limit at most.
func (s *Store) replace(next *clientv3.Client, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		if next != nil {
			_ = next.Close()
		}
		return
	}
	if s.former != nil {
		_ = s.former.Close()
	}
	old := s.cur
	s.cur, s.former = next, old
	close(s.moved)
	s.moved = make(chan struct{})
	time.AfterFunc(2*limit, func() {
		s.mu.Lock()
		ours := s.former == old
		if ours {
			s.former = nil
		}
		s.mu.Unlock()
		if ours && old != nil {
			_ = old.Close()
		}
	})
}

// movedNow returns a channel that is closed when the client that is in use now is not any more.
func (s *Store) movedNow() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// digest is of what r says of the connection, with the files' contents as they were when r was made.
func (r *resolved) digest() [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q", r.Endpoints, r.CAFile, r.CertFile, r.KeyFile,
		r.Username, r.Password.Reveal()))
}

// Files returns the files that c names. Certificates of them are PEM files whose dates count.
func (c Config) Files() (certificates, others []string) {
	named := func(l ...string) []string {
		return slices.DeleteFunc(l, func(s string) bool { return s == "" })
	}
	return named(c.CertFile, c.CAFile), named(c.KeyFile, c.PasswordFile)
}

// contents is a digest of the files that c names; those that cannot be read count as empty.
func (c Config) contents() [sha256.Size]byte {
	certificates, others := c.Files()
	h := sha256.New()
	for _, f := range append(certificates, others...) {
		b, _ := os.ReadFile(f) // resolve has said what is wrong with it
		fmt.Fprintf(h, "%q %q ", f, b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

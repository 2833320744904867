package keeper_test

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// line is one node's connection to the store, which can be cut.
type line struct {
	*leasetest.Store

	mu     sync.Mutex
	broken bool
	missed []func() // calls back that wait for the end of the cut
}

func (l *line) cut(broken bool) {
	l.mu.Lock()
	l.broken = broken
	missed := l.missed
	if !broken {
		l.missed = nil
	}
	l.mu.Unlock()
	for _, f := range missed {
		if !broken {
			f()
		}
	}
}

func (l *line) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return leasetest.ErrOutage
	}
	return nil
}

func (l *line) later(f func()) {
	l.mu.Lock()
	broken := l.broken
	if broken {
		l.missed = append(l.missed, f)
	}
	l.mu.Unlock()
	if !broken {
		f()
	}
}

func (l *line) Snapshot(ctx context.Context) (lease.Snapshot, error) {
	if err := l.err(); err != nil {
		return lease.Snapshot{}, err
	}
	return l.Store.Snapshot(ctx)
}

func (l *line) Put(ctx context.Context, s lease.Subnets, a lease.Attrs, ttl time.Duration,
	at int64) (int64, error) {
	if err := l.err(); err != nil {
		return 0, err
	}
	return l.Store.Put(ctx, s, a, ttl, at)
}

func (l *line) Tell(ctx context.Context, m lease.Message) error {
	if err := l.err(); err != nil {
		return err
	}
	return l.Store.Tell(ctx, m)
}

func (l *line) Watch(ctx context.Context, changed func(lease.Snapshot), lost func(error)) error {
	return l.Store.Watch(ctx, func(s lease.Snapshot) { l.later(func() { changed(s) }) }, lost)
}

func (l *line) Listen(ctx context.Context, node string, told func(lease.Message)) error {
	return l.Store.Listen(ctx, node, func(m lease.Message) { l.later(func() { told(m) }) })
}

// underlay knows which addresses answer.
type underlay struct {
	mu sync.Mutex
	up map[netip.Addr]bool
}

func (u *underlay) set(addrs string, up bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for a := range strings.SplitSeq(addrs, ",") {
		u.up[netip.MustParseAddr(a)] = up
	}
}

// from is the underlay as a node with the addresses sees it: its own are not another's.
func (u *underlay) from(addrs string) keeper.Underlay { return seen{u, addrs} }

type seen struct {
	*underlay
	own string
}

func (s seen) Answers(_ context.Context, a lease.Attrs) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range []netip.Addr{a.PublicIP, a.PublicIPv6} {
		if addr.IsValid() && s.up[addr] && !strings.Contains(","+s.own+",", ","+addr.String()+",") {
			return true
		}
	}
	return false
}

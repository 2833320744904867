package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

const (
	quiet    = 100 * time.Millisecond // a snapshot waits for this much silence
	patience = 500 * time.Millisecond // but no longer than this
	// Between attempts. No longer than a second: with the connection's own back-off it
	// bounds how late a change is learnt after an outage.
	retryMin = 100 * time.Millisecond
	retryMax = time.Second
	// relistSoon is when a list confirms what a resumed watch made of things: a store
	// that was restored and has since grown past our revision looks like ours.
	relistSoon = 20 * time.Second
)

// Watch implements lease.Store. changed and lost are called from one goroutine, never
// at the same time; while one runs, no event is read. lost is called once for each
// failed attempt, and changed at the end of an outage even if nothing did change.
// Watch returns the error of ctx.
func (s *Store) Watch(ctx context.Context, changed func(lease.Snapshot), lost func(error)) error {
	w := &watch{store: s, view: newView(s.keys), changed: changed}
	retry := retryMin
	for {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case errors.Is(err, errMoved):
			s.log.Debug("etcd: another client goes on")
		case errors.Is(err, errStale):
			w.view.listed = 0
			s.log.Debug("etcd: list again", "reason", err)
		default:
			lost(s.plainly(err))
		}
		s.expiries.forget()
		if time.Since(began) > s.config().RequestTimeout+retryMax { // it had worked for a while
			retry = retryMin
		}
		select {
		case <-time.After(jitter(retry)):
		case <-ctx.Done():
			return ctx.Err()
		}
		retry = min(2*retry, retryMax)
	}
}

// jitter returns 80 to 100 % of d.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/5+1) }

// watch is the state of one Watch.
type watch struct {
	store   *Store
	view    *view
	changed func(lease.Snapshot)
}

// session lists or resumes, then takes in one stream until it fails.
func (w *watch) session(ctx context.Context) error {
	relist, resumed := w.store.config().RelistEvery, true
	if w.view.listed != 0 {
		err := w.confirm(ctx)
		if err != nil && !errors.Is(err, errStale) {
			return err
		}
		if err != nil {
			w.view.listed = 0
		} else {
			relist = min(relist, relistSoon)
		}
	}
	if w.view.listed == 0 {
		if err := w.list(ctx); err != nil {
			return err
		}
		resumed = false
	}
	moved := w.store.movedNow()
	c, err := w.store.conn(ctx)
	if err != nil {
		return err
	}
	st, err := w.store.openStream(ctx, c, w.view)
	if err != nil {
		return err
	}
	defer st.close()
	// The end of an outage is told even if nothing changed.
	return w.receive(ctx, st, resumed, relist, moved)
}

// list reads everything and hands it on.
func (w *watch) list(ctx context.Context) error {
	if err := w.store.list(ctx, w.view); err != nil {
		return err
	}
	w.emit()
	return nil
}

func (w *watch) emit() {
	w.store.expiries.keep(w.view.leases())
	w.changed(w.view.snapshot(&w.store.expiries))
}

// confirm asks whether the store is still the one that we know and has not gone back.
func (w *watch) confirm(ctx context.Context) error {
	return w.store.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, w.view.keys.config, clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("read %s: %w", w.view.keys.config, err)
		}
		known := max(w.view.configSeen, w.view.recordsSeen)
		switch id := clusterID(resp.Header.ClusterId); {
		case id != w.view.cluster:
			return fmt.Errorf("%w: cluster %s became %s", errStale, w.view.cluster, id)
		case resp.Header.Revision < known:
			return fmt.Errorf("%w: revision went from %d back to %d", errStale, known, resp.Header.Revision)
		}
		return nil
	})
}

// receive takes in what st delivers, until st fails, falls silent, moved is closed or ctx ends.
func (w *watch) receive(ctx context.Context, st *stream, dirty bool, relist time.Duration,
	moved <-chan struct{}) error {
	cfg := w.store.config()
	emit := time.NewTimer(0)
	if !dirty {
		emit.Stop()
	}
	list := time.NewTimer(jitter(relist))
	ping := time.NewTimer(cfg.PingEvery)
	defer emit.Stop()
	defer list.Stop()
	defer ping.Stop()
	var since time.Time // of the first change not yet handed on
	var asked time.Time // when ping became the deadline for an answer; zero while it is not
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
			return errMoved
		case <-st.broken:
			return fmt.Errorf("watch %s: %w", w.view.keys.prefix, errBroken())
		case resp := <-st.C:
			took := w.store.Heard().Took
			if !asked.IsZero() {
				took = time.Since(asked)
			}
			asked = time.Time{}
			ping.Reset(cfg.PingEvery)
			dirty, err := w.take(resp, took)
			if err != nil {
				return fmt.Errorf("watch %s: %w", w.view.keys.prefix, err)
			}
			if dirty {
				since = firstOf(since, time.Now())
				emit.Reset(min(quiet, time.Until(since.Add(patience))))
			}
		case <-emit.C:
			since = time.Time{}
			w.emit()
		case <-list.C:
			emit.Stop()
			since = time.Time{}
			if err := w.list(ctx); err != nil {
				return err
			}
			list.Reset(jitter(cfg.RelistEvery))
		case <-ping.C:
			switch {
			case !asked.IsZero():
				return fmt.Errorf("watch %s: etcd is silent since %s", w.view.keys.prefix, cfg.PingEvery+cfg.PingTimeout)
			case w.view.ahead(): // a read tells as much
				if err := w.confirm(ctx); err != nil {
					return err
				}
				ping.Reset(cfg.PingEvery)
			default:
				st.ping()
				asked = time.Now()
				ping.Reset(cfg.PingTimeout)
			}
		}
	}
}

func firstOf(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// take applies one response, which came took after a ping, and reports whether it changed anything.
func (w *watch) take(resp clientv3.WatchResponse, took time.Duration) (dirty bool, err error) {
	if err := fault(resp, w.view.cluster); err != nil {
		return false, err
	}
	w.store.answered(took) // an answer to a ping has no events
	for _, e := range resp.Events {
		if e.Type == mvccpb.PUT && e.Kv.ModRevision > w.view.listed {
			w.store.expiries.seen(clientv3.LeaseID(e.Kv.Lease))
		}
		dirty = w.view.apply((*mvccpb.Event)(e)) || dirty
	}
	return dirty, nil
}

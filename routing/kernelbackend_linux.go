package routing

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft/lease"
)

// kernelBackend is a backend whose packets the kernel moves: it keeps devices, routes and
// tables as its way wants them. It is safe for concurrent use.
type kernelBackend struct {
	cfg     BackendConfig
	log     *slog.Logger
	k       *Kernel
	way     way
	actor   actor // nil if the way is all in the kernel
	monitor *monitor
	kick    chan struct{} // holds one: something may have changed
	grace   time.Duration // underlayGrace, but in tests
	release string        // the kernel's, but in tests

	mu      sync.Mutex // serializes reconciling, and guards what follows
	set     lease.Set
	under   underState
	hops    map[netip.Addr]hop
	tenure  tenure         // as of want
	want    desired        // what was in place last: a change without another want is a repair
	settled bool           // flannel's leftovers were taken over
	made    map[string]int // the numbers of our devices by name
	warned  map[string]bool
	strict  strictDrops
	ended   bool

	statusMu sync.Mutex // a leaf lock, so that Status never waits for the kernel
	status   Status
}

// actor is the part of a way that is not the kernel's state.
type actor interface {
	// act brings what it does to the situation; what fails is tried again, for the node itself and for
	// single peers: one that cannot be served does not make the node unfit, and reached is changed
	// there. It is called with the backend's lock held.
	act(ctx context.Context, s situation, reached []Reached) (node, peers error)
	// stop is called once when the backend has run and ends.
	stop(ctx context.Context) error
}

var _ Backend = (*kernelBackend)(nil)

// newKernelBackend opens descriptors, touches nothing and starts nothing.
func newKernelBackend(c BackendConfig, w way, a actor) (*kernelBackend, error) {
	t := w.trait()
	if c.Kernel == nil {
		return nil, fmt.Errorf("%s backend: BackendConfig.Kernel is missing", t.name)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	mtu, err := w.mtu(c.Underlay.MTU)
	if err != nil {
		return nil, fmt.Errorf("%s backend over %s: %w", t.name, c.Underlay.Link, err)
	}
	b := &kernelBackend{
		cfg: c, log: c.Logger.With("backend", t.name), k: c.Kernel, way: w, actor: a,
		kick: make(chan struct{}, 1), grace: underlayGrace, release: c.Kernel.release(), warned: map[string]bool{}, made: map[string]int{},
	}
	b.under.now = c.Underlay
	b.status = Status{Type: t.name, MTU: mtu, Path: t.path, Underlay: c.Underlay}
	if b.monitor, err = b.k.subscribe(); err != nil {
		return nil, fmt.Errorf("%s backend: %w", t.name, err)
	}
	return b, nil
}

// openKernel makes the backend of a type whose packets the kernel moves.
func openKernel(c BackendConfig, w way, a actor) (Backend, error) {
	b, err := newKernelBackend(c, w, a)
	if err != nil {
		return nil, err // and no *kernelBackend in the interface
	}
	return b, nil
}

// Type implements Backend.
func (b *kernelBackend) Type() string { return b.way.trait().name }

// RecordType implements Backend.
func (b *kernelBackend) RecordType() string { return b.way.trait().record }

// Publish implements Backend.
func (b *kernelBackend) Publish() (data, v6data json.RawMessage) { return b.way.publish() }

// MTU implements Backend.
func (b *kernelBackend) MTU() int { return b.Status().MTU }

// Status implements Backend.
func (b *kernelBackend) Status() Status {
	b.statusMu.Lock()
	defer b.statusMu.Unlock()
	return b.status
}

// Apply implements Backend.
func (b *kernelBackend) Apply(ctx context.Context, s lease.Set) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return fmt.Errorf("%s backend: it has ended", b.Type())
	}
	b.set = s
	err := b.reconcile(ctx)
	if err != nil {
		b.nudge() // Run retries
	}
	return err
}

// Run implements Backend.
func (b *kernelBackend) Run(ctx context.Context) error {
	started := ctx.Err() == nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, b.monitor.Close)
	defer stop()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { defer cancel(); err = b.monitor.run(func(change) { b.nudge() }) })
	b.repair(ctx)
	wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true // from here on the Kernel may be closed
	if b.actor != nil && started {
		// Detached: the context that would bound it has just ended.
		if err := b.actor.stop(context.WithoutCancel(ctx)); err != nil {
			b.log.Warn("stop", "error", err)
		}
	}
	return wrap(b.Type()+" backend", err)
}

// Close implements Backend.
func (b *kernelBackend) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return b.Run(ctx)
}

// repair reconciles after every notification and failure, and now and then, until
// ctx ends.
func (b *kernelBackend) repair(ctx context.Context) {
	timer := time.NewTimer(resync)
	defer timer.Stop()
	retry := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		b.mu.Lock()
		err := b.reconcile(ctx)
		b.mu.Unlock()
		wait := resync
		if err != nil {
			wait, retry = retry, min(2*retry, retryLast)
		} else {
			retry = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tidy):
		}
		timer.Reset(wait)
	}
}

// nudge asks for a reconcile. It does not block.
func (b *kernelBackend) nudge() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// networks are those of the config, then the former ones.
func (b *kernelBackend) networks() []netip.Prefix {
	return slices.Concat(networks(b.cfg.Network), b.cfg.Former)
}

// look finds the ways to the peers. While the underlay is lost they stay what they were: without
// it there are none, and what stands in the kernel works again the moment it is back.
func (b *kernelBackend) look() error {
	if !b.way.trait().looks || b.under.lost != "" {
		return nil
	}
	hops, err := b.k.nextHops(b.outer())
	if err == nil {
		b.hops = hops
	}
	return err
}

// outer are the peers' addresses.
func (b *kernelBackend) outer() []netip.Addr {
	var as []netip.Addr
	for _, r := range b.set.Peers {
		as = append(as, valid(r.PublicIP, r.PublicIPv6)...)
	}
	return as
}

// warnOnce logs a fault that does not matter enough to fail, the first time.
func (b *kernelBackend) warnOnce(err error) {
	if err != nil && !b.warned[err.Error()] {
		b.warned[err.Error()] = true
		b.log.Warn("not set", "error", err)
	}
}

// report publishes what a reconcile found, and logs an error that is new.
func (b *kernelBackend) report(st Status, d desired, err error) {
	b.statusMu.Lock()
	old := b.status
	st.Type, st.Path = old.Type, old.Path
	st.Underlay, st.UnderlayLost = b.under.now, b.under.lost
	st.LastReconcile = time.Now()
	st.Repaired += old.Repaired
	st.Reached, st.Skipped, st.Peers = d.reached, skippedOf(d.reached), usedPeers(d.reached)
	if len(old.Adopted) > 0 {
		st.Adopted = old.Adopted
	}
	if err != nil {
		st.LastError = err.Error()
	}
	b.status = st
	b.statusMu.Unlock()
	if !slices.Equal(st.Skipped, old.Skipped) {
		for _, s := range st.Skipped {
			b.log.Warn("peer not used", "peer", s.Peer, "reason", s.Reason)
		}
	}
	switch {
	case err != nil && st.LastError != old.LastError:
		b.log.Error("reconcile", "error", err)
	case err == nil && old.LastError != "":
		b.log.Info("reconciled, all in place")
	}
}

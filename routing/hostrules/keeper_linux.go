package hostrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/lease"
	"weft/routing/event"
	"weft/routing/internal/errno"
)

// Rules keeps the host's rules as the latest set of leases wants them. Its methods are
// safe for concurrent use.
type Rules struct {
	cfg   Config
	scope scope
	log   *slog.Logger

	protects atomic.Pointer[Guard] // never nil
	seals    atomic.Pointer[Seal]
	set      atomic.Pointer[lease.Set] // nil until there is one with a subnet of ours
	kick     chan struct{}             // holds one: the seal is another

	mu      sync.Mutex // protects what follows; its holder may wait for iptables
	drops   *table
	accepts []accepting
	flavour kind // of iptables; 0 until it is looked for
	swept   bool // nothing is left of an earlier run
	warned  map[string]bool
	placed  map[string]bool // whose first look is over
	outer   outerRoutes

	statusMu sync.Mutex
	status   Status
}

// Status is what weft status shows of the rules.
type Status struct {
	// Firewall says where masquerade and forward are: "nftables", or iptables with its flavour; "" before there
	// are any.
	Firewall string `json:"firewall,omitempty"`
	// InPlace says that everything is as it should be; if not, LastError says what is wrong.
	InPlace   bool   `json:"inPlace"`
	LastError string `json:"error,omitempty"`
	// Repaired counts how often rules were restored that somebody else had changed.
	Repaired uint64 `json:"repaired"`
	// Dropped counts the packets that the rules dropped since the start.
	Dropped
	// Notes are sentences for the operator: what of the host keeps packets from passing, and the remedy.
	Notes []string `json:"notes,omitempty"`
}

// accepting is a firewall in which what masquerades and accepts in one family can be.
type accepting struct {
	kind     kind
	ipv6     bool
	firewall interface {
		fmt.Stringer
		// accept makes the firewall have these rules of the scope's network; none where want has none. repaired
		// says that it had them, and that somebody else has changed it.
		accept(ctx context.Context, s scope, want familyRules) (wrote, repaired bool, err error)
	}
}

// New starts nothing and changes nothing.
func New(c Config) *Rules {
	c.Resync = max(cmp.Or(c.Resync, defaultResync), time.Second)
	r := &Rules{cfg: c, scope: scopeOf(c.Network, c.Former), log: c.Logger,
		warned: map[string]bool{}, placed: map[string]bool{}, kick: make(chan struct{}, 1)}
	drops, flannels := newTables(r.scope, c.Network.Networks(), c.RandomFully)
	r.drops = drops
	for i, six := range []bool{false, true} {
		r.accepts = append(r.accepts, accepting{kindNFTables, six, flannels[i]})
		for _, k := range []kind{kindIptablesNFT, kindIptablesLegacy} {
			r.accepts = append(r.accepts, accepting{k, six, &iptables{ipv6: six, kind: k}})
		}
	}
	r.Protect(c.Guard)
	return r
}

// Protect says what the overlay's port needs from now on: the rules follow with the next Apply, or when Run
// looks at them the next time. It never waits for the kernel.
func (r *Rules) Protect(g Guard) { r.protects.Store(&g) }

// Apply makes the rules fit s. It returns when they do, or with every error joined; Run tries
// again what failed. Apply works before Run runs. If s has no subnet of ours, nothing changes.
func (r *Rules) Apply(ctx context.Context, s lease.Set) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Own.Subnets == (lease.Subnets{}) {
		return nil
	}
	r.set.Store(&s)
	return r.reconcile(ctx)
}

// Present reports whether an earlier process has left rules that drop: if there is to be a Seal, one of it in
// each family that has rules. If so, packets need not wait for the first Apply. It reads the kernel, and does
// not wait for an Apply that waits for iptables.
func (r *Rules) Present() bool {
	have, err := r.drops.read()
	if err != nil || r.seals.Load() == nil {
		return err == nil && have.rules > 0
	}
	four, six := r.cfg.Network.EnableIPv4, r.cfg.Network.EnableIPv6
	if s := r.set.Load(); s != nil { // a family without a subnet has no rules
		four, six = four && s.Own.V4.IsValid(), six && s.Own.V6.IsValid()
	}
	return (four || six) && (!four || have.sealed4 > 0) && (!six || have.sealed6 > 0) &&
		slices.Contains(have.chains, r.drops.named(chainSealedIn)) &&
		slices.Contains(have.chains, r.drops.named(chainSealedOut))
}

// settle is how long we wait after a notification before we inspect the rules, since programs
// change rules in many steps.
const settle = 50 * time.Millisecond

// Run restores what others change, until ctx ends; then it returns nil. The rules stay.
func (r *Rules) Run(ctx context.Context) error {
	changes := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	m, err := subscribe()
	if err != nil {
		r.log.Info("no notifications from nftables: rules are only looked at from time to time", "every",
			r.cfg.Resync, "reason", err)
	} else {
		stop := context.AfterFunc(ctx, m.Close)
		defer stop()
		defer m.Close()
		wg.Go(func() { signalChanges(m, changes) })
	}
	tick := time.NewTicker(r.cfg.Resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.kick:
		case <-changes:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(settle):
			}
		}
		r.mu.Lock()
		if r.set.Load() != nil {
			_ = r.reconcile(ctx) // it has logged and published what is wrong
		}
		r.mu.Unlock()
	}
}

// Status is a snapshot. It does not wait for the kernel.
func (r *Rules) Status() Status {
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	s := r.status
	s.Notes = slices.Clone(s.Notes)
	return s
}

// round is one reconcile of all firewalls: what it found, and what is wrong. A failure does not stop the
// rest.
type round struct {
	st     Status
	faults []error
}

// reconcile makes what drops first, then what masquerades and accepts, and removes what is left of earlier
// runs once all of these stand. mu is held, and there is a set.
func (r *Rules) reconcile(ctx context.Context) error {
	set := *r.set.Load()
	x := &round{st: Status{Notes: hostNotes(r.cfg)}}
	all, err := listLinks()
	guard, note := r.guard(all)
	x.st.Notes = append(x.st.Notes, note...)
	var links []string
	if err == nil {
		links, err = r.outer.links(all, guard, set, r.cfg.RouteProtocol)
	}
	if err != nil {
		x.st.Notes = append(x.st.Notes, fmt.Sprintf("which links are the underlay's side is not known: %v", err))
	}
	cfg := r.cfg
	cfg.seal = r.seals.Load()
	v4, v6 := desired(cfg, set, guard, len(links) > 0)
	r.syncDrops(x, v4, v6, links, cfg.seal != nil)
	primary, err := r.primary(ctx)
	x.faults = append(x.faults, err)
	for _, a := range r.accepts {
		want := v4
		if a.ipv6 {
			want = v6
		}
		if a.kind == primary {
			wrote, repaired, err := a.firewall.accept(ctx, r.scope, want)
			r.tell(x, a.firewall, want.masquerade != nil || want.forward != nil, wrote, repaired, err)
		}
	}
	if err := syncBlackhole(r.cfg, set.Own.Subnets); err != nil {
		x.faults = append(x.faults, err)
	}
	if errors.Join(x.faults...) == nil && !r.swept {
		r.sweep(ctx, x, primary)
	}
	err = errors.Join(x.faults...)
	if err != nil && ctx.Err() != nil {
		return err // we were interrupted, which says nothing about the rules
	}
	r.report(x.st, primary, err)
	return err
}

// syncDrops makes what drops.
func (r *Rules) syncDrops(x *round, v4, v6 familyRules, links []string, sealed bool) {
	chains := dropChains(v4, v6)
	wrote, repaired, err := r.drops.sync(chains, dropSets(chains, v4, v6, links))
	if errors.Is(err, errNoNFTables) {
		r.withoutDrops(x, v4, v6, sealed)
		return
	}
	r.tell(x, r.drops, len(r.drops.chains) > 0, wrote, repaired, err)
}

// withoutDrops notes that nothing is guarded. Where packets could leave in plain that is a fault.
func (r *Rules) withoutDrops(x *round, v4, v6 familyRules, sealed bool) {
	switch {
	case sealed:
		x.faults = append(x.faults, fmt.Errorf("nothing keeps packets from leaving in plain: %w", errNoNFTables))
	case len(dropChains(v4, v6)) > 0:
		x.st.Notes = append(x.st.Notes, fmt.Sprintf("nothing keeps pods and strangers off the overlay's port: %v",
			errNoNFTables))
	}
}

// sweep removes what an earlier run or flannel left in the firewalls that are not in use.
func (r *Rules) sweep(ctx context.Context, x *round, primary kind) {
	for _, a := range r.accepts {
		if a.kind == primary {
			continue
		}
		wrote, _, err := a.firewall.accept(ctx, r.scope, familyRules{ipv6: a.ipv6})
		if errors.Is(err, errNoTools) || errors.Is(err, errNoNFTables) {
			err = nil // nobody can have written there from here
		}
		r.tell(x, a.firewall, false, wrote, false, err)
	}
	r.swept = errors.Join(x.faults...) == nil
}

// tell logs a change, and that the rules of an earlier run are as they should be.
func (r *Rules) tell(x *round, firewall fmt.Stringer, wanted, wrote, repaired bool, err error) {
	if err != nil {
		x.faults = append(x.faults, err)
		return
	}
	where := firewall.String()
	first := !r.placed[where]
	r.placed[where] = true
	switch {
	case !wrote && (!first || !wanted):
	case wrote && repaired:
		x.st.Repaired++
		r.log.Warn("rules were changed by somebody else: put back", "event", event.RulesRepaired, "where", where)
	case !wanted:
		r.log.Info("rules of an earlier run or of flannel removed", "event", event.TakenOver, "where", where)
	default:
		r.log.Info("rules in place", "event", event.RulesInPlace, "where", where, "kept", !wrote)
	}
}

// report publishes st, and logs what is new. mu is held.
func (r *Rules) report(st Status, primary kind, err error) {
	for _, n := range st.Notes {
		if !r.warned[n] {
			r.warned[n] = true
			r.log.Warn("the host", "note", n)
		}
	}
	if primary != 0 {
		st.Firewall = primary.String()
	}
	st.Dropped = r.drops.total
	if err != nil {
		st.LastError = err.Error()
	}
	r.statusMu.Lock()
	before := r.status
	st.InPlace = err == nil || before.InPlace && errno.Exhausted(err)
	st.Repaired += before.Repaired
	r.status = st
	r.statusMu.Unlock()
	switch {
	case err != nil && st.LastError != before.LastError:
		r.log.Error("rules are not in place; it is tried again", "error", err)
	case err == nil && before.LastError != "":
		r.log.Info("all rules are in place", "event", event.RulesInPlace)
	}
}

// primary is where masquerade and forward belong. mu is held.
func (r *Rules) primary(ctx context.Context) (kind, error) {
	if r.cfg.Network.EnableNFTables {
		return kindNFTables, nil
	}
	if r.flavour == 0 {
		k, why, err := chooseFlavour(ctx)
		if err != nil {
			return 0, err
		}
		r.flavour = k
		r.log.Info("iptables", "flavour", k.String(), "because", why)
	}
	return r.flavour, nil
}

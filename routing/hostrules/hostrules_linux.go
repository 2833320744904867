package hostrules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weft/lease"
	"weft/routing/event"
)

// Rules keeps the host's rules as the latest set of leases wants them. Its methods are
// safe for concurrent use.
type Rules struct {
	cfg   Config
	log   *slog.Logger
	sides []*side

	protects atomic.Pointer[Guard] // never nil
	seals    atomic.Pointer[Seal]
	set      atomic.Pointer[lease.Set] // nil until there is one with a subnet of ours
	kick     chan struct{}             // holds one: the seal is another

	mu      sync.Mutex // protects what follows, and what was done to the sides; who holds it may wait for iptables
	flavour kind       // of iptables; 0 until it is looked for
	warned  map[string]bool
	outer   outerLinks
	drops   barrierNotes

	statusMu sync.Mutex
	status   Status
}

// Status is what weft status shows of the rules.
type Status struct {
	// Firewall says where the rules are: "nftables", or iptables with its flavour; "" before there are any.
	Firewall string
	// InPlace says that everything is as it should be; if not, LastError says what is wrong.
	InPlace   bool
	LastError string
	// Repaired counts how often rules were restored that somebody else had changed.
	Repaired uint64
	// Dropped counts the packets that the rules dropped since the start. What the rules of an earlier process had counted then is not in it.
	Dropped Dropped
	// Notes are sentences for the operator: which settings of the host keep packets from passing, and the remedy.
	Notes []string
}

// New checks c. It starts nothing and changes nothing.
func New(c Config) (*Rules, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	r := &Rules{cfg: c, log: c.Logger, sides: newSides(), warned: map[string]bool{}, kick: make(chan struct{}, 1)}
	r.Protect(c.Guard)
	return r, nil
}

// Protect says what the overlay's port needs from now on: the rules follow with the next Apply, or when Run looks at
// them the next time. It never waits for the kernel.
func (r *Rules) Protect(g Guard) { r.protects.Store(&g) }

func newSides() []*side {
	var sides []*side
	for _, ipv6 := range []bool{false, true} {
		sides = append(sides,
			&side{firewall: nft{ipv6}, ipv6: ipv6, kind: kindNFTables},
			&side{firewall: &iptables{ipv6: ipv6, kind: kindIptablesNFT}, ipv6: ipv6, kind: kindIptablesNFT},
			&side{firewall: &iptables{ipv6: ipv6, kind: kindIptablesLegacy}, ipv6: ipv6, kind: kindIptablesLegacy})
	}
	return sides
}

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

// Present reports whether an earlier process has left rules of ours: if there is to be a Seal, one of it in each family that has rules. If so,
// packets need not wait for the first Apply. It reads the kernel, and does not wait for an Apply that waits for iptables.
func (r *Rules) Present() bool {
	if r.seals.Load() == nil {
		return r.own(false) != "" || r.own(true) != ""
	}
	four, six := r.cfg.Network.EnableIPv4, r.cfg.Network.EnableIPv6
	if s := r.set.Load(); s != nil { // a family without a subnet has no rules
		four, six = four && s.Own.V4.IsValid(), six && s.Own.V6.IsValid()
	}
	return (four || six) && (!four || hasSeal(r.own(false))) && (!six || hasSeal(r.own(true)))
}

// own names everything of ours in the firewall of a family in which the rules belong.
func (r *Rules) own(ipv6 bool) (all string) {
	for _, s := range r.sides {
		if s.ipv6 == ipv6 && (s.kind == kindNFTables) == r.cfg.Network.EnableNFTables {
			if v, err := s.inspect(); err == nil {
				all += v.own
			}
		}
	}
	return all
}

// hasSeal says of a view that both directions are in it.
func hasSeal(own string) bool {
	return strings.Contains(own, nftSealedIn) && strings.Contains(own, nftSealedOut) || strings.Contains(own, chainSealedIn) && strings.Contains(own, chainSealedOut)
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
		r.log.Info("no notifications from nftables: rules are only looked at from time to time", "every", r.cfg.Resync, "reason", err)
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

// reconcile inspects every firewall, plans, and changes what differs. mu is held, and there is a set.
func (r *Rules) reconcile(ctx context.Context) error {
	set := *r.set.Load()
	st := Status{Notes: hostNotes(r.cfg)}
	guard, note := r.guard()
	st.Notes = append(st.Notes, note...)
	outer, err := r.outer.links(guard, set, r.cfg.RouteProtocol)
	if err != nil {
		st.Notes = append(st.Notes, fmt.Sprintf("which links are the underlay's side is not known: %v", err))
	}
	cfg := r.cfg
	cfg.seal = r.seals.Load()
	v4, v6 := desired(cfg, set, guard, outer)

	var faults []error
	views := make([]view, len(r.sides))
	for i, s := range r.sides {
		v, err := s.inspect()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", s.name(), err))
		}
		s.count(v)
		views[i] = v
	}
	primary, err := r.primary(ctx)
	faults = append(faults, err)
	failed := errors.Join(faults...) != nil
	for _, p := range plan(r.sides, views, primary, v4, v6) {
		if p.want.empty() && failed {
			continue
		}
		s := r.sides[p.side]
		first := !s.known
		wrote, repaired, err := s.bring(ctx, views[p.side], p.want)
		r.tell(s, p.want, wrote, repaired, first && s.known, &st)
		if err != nil {
			faults = append(faults, err)
			failed = true
		}
	}
	if err := syncBlackhole(r.cfg, set.Own.Subnets); err != nil {
		faults = append(faults, err)
	}
	st.Notes = append(st.Notes, r.drops.notes(r.cfg, guard, set)...)
	err = errors.Join(faults...)
	if err != nil && ctx.Err() != nil {
		return err // we were interrupted, which says nothing about the rules
	}
	r.report(st, primary, err)
	return err
}

// planned is what the side of that index is to hold.
type planned struct {
	side int
	want familyRules
}

// plan says what each side is to hold, in the order in which they are changed: first the firewall in which the rules
// belong, primary, with those that would drop what it accepts; what is left in the others comes last, and is removed
// only if all before succeeded. It is pure.
func plan(sides []*side, views []view, primary kind, v4, v6 familyRules) []planned {
	var needed, leftovers []planned
	for i, s := range sides {
		all := v4
		if s.ipv6 {
			all = v6
		}
		want := familyRules{ipv6: s.ipv6}
		switch {
		case s.kind == primary:
			want = all
		case s.kind != kindNFTables && views[i].forwardDrops:
			// A drop in one firewall is final, whatever the other accepts.
			want = all.forwardOnly()
		}
		if want.empty() {
			leftovers = append(leftovers, planned{i, want})
		} else {
			needed = append(needed, planned{i, want})
		}
	}
	return slices.Concat(needed, leftovers)
}

// tell logs a change, and that the rules of an earlier run are as they should be: then the first look has written nothing. mu is held.
func (r *Rules) tell(s *side, want familyRules, wrote, repaired, first bool, st *Status) {
	switch {
	case !wrote && (!first || want.empty()):
	case repaired:
		st.Repaired++
		r.log.Warn("rules were changed by somebody else: put back", "event", event.RulesRepaired, "where", s.name())
	case want.empty():
		r.log.Info("rules of an earlier run or of flannel removed", "event", event.TakenOver, "where", s.name())
	default:
		r.log.Info("rules in place", "event", event.RulesInPlace, "where", s.name(), "kept", !wrote, "masquerade", want.masquerade != nil, "forward", want.forward != nil,
			"pods_kept_off", want.podsInput != nil, "peers_let_in", len(want.peers), "peers_only", want.peersInput != nil)
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
	for _, s := range r.sides {
		st.Dropped = st.Dropped.plus(s.dropped)
	}
	st.InPlace = err == nil
	if err != nil {
		st.LastError = err.Error()
	}
	r.statusMu.Lock()
	before := r.status
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

// primary is where the rules belong. mu is held.
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

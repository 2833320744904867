package keeper

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/internal/inbox"
)

// Local is this node's description of itself. It may change while a keeper runs.
type Local struct {
	// Attrs is what we publish. Weft is made if it is nil, and Weft.Node is set.
	Attrs lease.Attrs
	// Underlay are the local and the advertised addresses of the tunnel.
	Underlay []netip.Addr
	// Store are the addresses of the store's endpoints.
	Store []netip.Addr
}

// Options is what a keeper needs. Required: Node, Config and Local.Attrs.
type Options struct {
	// Node is our identity.
	Node string
	// State names our state directory (see LoadState); "" if there is none.
	State string
	// Underlay tells whether another owner lives, beside the store; nil for the store alone.
	Underlay Underlay
	// Config is the network, and RawConfig the text that it was read from, for the cache; nil means
	// Config as it would be written. It stays until a restart; see ConfigChangedError.
	Config    lease.NetworkConfig
	RawConfig []byte
	// CheckConfig parses and checks the store's configuration; nil means ParseNetworkConfig, which knows
	// nothing of backends.
	CheckConfig func([]byte) (lease.NetworkConfig, error)
	// Unproven means that nobody knows yet whether Config can be served. Until Proven is called, nothing is
	// cached, so that the last good state stays.
	Unproven bool
	// Seed is written to the store if it has no configuration; nil for none.
	Seed []byte
	// Local is what we say about ourselves at first; see SetLocal.
	Local Local
	// Previous is the subnet that we had before, if the cache does not say; may be zero.
	Previous lease.Subnets
	// RenewMargin is how long before expiry a record is renewed: 1 minute to
	// 23 h 59 min. Zero means an hour.
	RenewMargin time.Duration
	// Cache keeps the last good state; nil for none. Cached is what it held, nil
	// if nothing: with it, Run serves at once and confirms the lease later.
	Cache  *belief.Cache
	Cached *belief.Cached
	// Publish gets every new complete Set, from one goroutine at a time. It must
	// not block: hand the set to a channel that keeps the latest. nil drops them.
	Publish func(lease.Set)
	// Rand draws subnets and jitter; nil means a random seed.
	Rand *rand.Rand
	// Logger gets one line per change of state; nil drops them.
	Logger *slog.Logger
}

// Random returns o with random numbers.
func (o Options) Random() Options {
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return o
}

// Silent returns o, of which a core has been made, for whoever carries out its effects: with a Logger and a
// Publish that drop what nobody wants, and without Cached, which the core has as long as it is needed.
func (o Options) Silent() Options {
	o.Cached = nil
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Publish == nil {
		o.Publish = func(lease.Set) {}
	}
	return o
}

// Keeper keeps one node's lease alive, and publishes the leases of the others. It carries out the effects of
// a Core, with a store, a clock and a disk. Its methods are safe for concurrent use.
type Keeper struct {
	store lease.Store
	o     Options
	in    *inbox.Inbox[News]

	mu   sync.Mutex // protects core
	core *Core
}

// New returns a keeper that does nothing yet. The error joins every fault
// in the options.
func New(store lease.Store, o Options) (*Keeper, error) {
	o = o.Random()
	core, err := NewCore(o, lease.NewIdentity(), time.Now())
	if err != nil {
		return nil, err
	}
	o = o.Silent()
	return &Keeper{store: store, o: o, in: inbox.New((*News).Merge), core: core}, nil
}

// SetLocal changes this node's description of itself, which nobody may change any more. The keeper soon
// rewrites a record that differs. SetLocal never blocks.
func (k *Keeper) SetLocal(l Local) { k.in.Post(News{Local: &l}) }

// Proven reports that Config can be served. From now on the cache holds it. It never blocks.
func (k *Keeper) Proven() { k.in.Post(News{Proven: true}) }

// Status returns the present state; the caller owns it. A lease whose time has
// run out is Expired from that moment on.
func (k *Keeper) Status() lease.Status {
	k.mu.Lock()
	s := k.core.Status(time.Now())
	k.mu.Unlock()
	heard := k.store.Heard()
	if s.StoreTook = heard.Took; heard.At.After(s.StoreSeen) { // a quiet store answers, and says nothing
		s.StoreSeen = heard.At
	}
	return s
}

// Current returns peers, which are those of a Set, with the store's present times of expiry and revisions: a
// renewal makes no new Set. The slice is new. It is safe for concurrent use.
func (k *Keeper) Current(peers []lease.Record) []lease.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.core.Peers.Current(peers)
}

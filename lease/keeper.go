package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// State is where a node's own lease stands.
type State uint8

// The states. The zero value is a bug.
const (
	_ State = iota
	// Acquiring: no lease yet.
	Acquiring
	// Unconfirmed: serving the cached lease; the store has not been heard.
	Unconfirmed
	// Held: the store has our record.
	Held
	// Expired: our record has ended, or is gone, and no other owner has been seen.
	// We go on serving.
	Expired
	// Lost: another owner has the subnet; we have given it up and look for another.
	Lost
	// Waiting: a record stands where ours should, whose owner lives, or is being asked for; or
	// ours is written over again and again. What we hold we go on serving.
	Waiting
)

func (s State) String() string {
	switch s {
	case Acquiring:
		return "acquiring"
	case Unconfirmed:
		return "unconfirmed"
	case Held:
		return "held"
	case Expired:
		return "expired"
	case Lost:
		return "lost"
	case Waiting:
		return "waiting"
	}
	return "invalid"
}

// Local is what this node says about itself. It may change while a keeper runs.
type Local struct {
	// Attrs is what we publish. Weft is made if it is nil, and Weft.Node is set.
	Attrs Attrs
	// Underlay are the local and the advertised addresses of the tunnel.
	Underlay []netip.Addr
	// Store are the addresses of the store's endpoints.
	Store []netip.Addr
}

func (l Local) equal(m Local) bool {
	return l.Attrs.Equal(m.Attrs) && slices.Equal(l.Underlay, m.Underlay) && slices.Equal(l.Store, m.Store)
}

// Options is what a keeper needs. Required: Node, Config and Local.Attrs.
type Options struct {
	// Node is our identity.
	Node string
	// State names our state directory (see LoadState); "" if there is none.
	State string
	// Underlay is asked whether another owner lives, beside the store; nil for the store alone.
	Underlay Underlay
	// Config is the network, and RawConfig the text that it was read from, for the cache; nil means
	// Config as it would be written. It stays until a restart; see ConfigChangedError.
	Config    NetworkConfig
	RawConfig []byte
	// CheckConfig reads what the store has as a configuration, and says what is wrong with it; nil
	// means ParseNetworkConfig, which knows nothing of backends.
	CheckConfig func([]byte) (NetworkConfig, error)
	// Unproven says that nobody knows yet whether Config can be served: nothing is cached, so
	// that what is stays, until Proven is called.
	Unproven bool
	// Seed is written to the store as its configuration if it has none; nil never.
	Seed []byte
	// Local is what we say about ourselves at first; see SetLocal.
	Local Local
	// Previous is the subnet that we had before, if the cache does not say; may be zero.
	Previous Subnets
	// RenewMargin is how long before expiry a record is renewed: 1 minute to
	// 23 h 59 min. Zero means an hour.
	RenewMargin time.Duration
	// Cache keeps the last good state; nil for none. Cached is what it held, nil
	// if nothing: with it, Run serves at once and confirms the lease later.
	Cache  *Cache
	Cached *Cached
	// Publish gets every new complete Set, from one goroutine at a time. It must
	// not block: hand the set to a channel that keeps the latest. nil drops them.
	Publish func(Set)
	// Rand draws subnets and jitter; nil means a random seed.
	Rand *rand.Rand
	// Logger gets one line per change of state; nil drops them.
	Logger *slog.Logger
}

// Keeper keeps one node's lease alive and publishes who else has one. Its methods
// are safe for concurrent use; Acquire and Run take turns.
type Keeper struct {
	store   Store
	o       Options
	log     *slog.Logger
	process string // names this process towards others of our identity
	in      *inbox

	turn sync.Mutex // held by Acquire and by Run; it protects the loop's state below
	loopState

	proven atomic.Bool // Config may be cached

	mu     sync.Mutex // protects what follows
	local  Local
	status Status
	lives  Memory // what we believed when we last published, or would have

	changed chan struct{} // capacity 1: local or proven has changed
}

// loopState belongs to whichever of Acquire and Run is running.
type loopState struct {
	held      *holding  // nil while we have no subnet
	previous  Subnets   // what to ask for when held is nil
	written   Attrs     // what the store's record of us says
	renew     time.Time // when held is due; zero for a reservation
	gone      bool      // the record of held is not in the store
	contest   *contest  // what keeps us from writing; nil for nothing
	putBacks  putBacks
	spoke     time.Time         // when we last told another that we live
	cleared   map[Subnets]int64 // revisions of records whose owners were asked for and are silent
	spawn     func(func())      // runs what Run or Acquire waits for
	doubt     bool              // read the store again before the next write
	seed      bool              // the store has no configuration, and we have one
	confirmed bool              // a store has answered since we started
	began     bool              // we have had a subnet since then
	awaited   bool              // the watch has said nothing yet
	mem       Memory            // what we believe
	bad       []Rejected        // of the last snapshot
	published *Set              // the last one; nil before the first
	saves     saves
	restored  bool      // we began with a cached state
	cached    []Record  // its records, until there is a Set
	retry     time.Time // no write before this
	failures  int       // in a row
	silent    time.Time // since when the store does not answer; zero while it does
	races     int       // lost in a row
}

// NewKeeper returns a keeper that does nothing yet. The error joins every fault
// in the options.
func NewKeeper(store Store, o Options) (*Keeper, error) {
	var faults []error
	if o.RenewMargin == 0 {
		o.RenewMargin = time.Hour
	}
	if o.RenewMargin < time.Minute || o.RenewMargin > TTL-time.Minute {
		faults = append(faults, fmt.Errorf("renew margin %s: want 1m to 23h59m", o.RenewMargin))
	}
	if !validNode(o.Node) {
		faults = append(faults, fmt.Errorf("node id %q is not valid", o.Node))
	}
	if o.State != "" && !validState(o.State) {
		faults = append(faults, fmt.Errorf("state directory %q is no name", o.State))
	}
	if !o.Config.EnableIPv4 && !o.Config.EnableIPv6 {
		faults = append(faults, errors.New("the network configuration is missing"))
	}
	if o.Config.EnableIPv4 && !o.Local.Attrs.PublicIP.Is4() {
		faults = append(faults, fmt.Errorf("EnableIPv4 true: want an IPv4 address to publish, not %s", o.Local.Attrs.PublicIP))
	}
	if o.Config.EnableIPv6 && !family6.is(o.Local.Attrs.PublicIPv6) {
		faults = append(faults, fmt.Errorf("EnableIPv6 true: want an IPv6 address to publish, not %s", o.Local.Attrs.PublicIPv6))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if o.Publish == nil {
		o.Publish = func(Set) {}
	}
	if o.CheckConfig == nil {
		o.CheckConfig = ParseNetworkConfig
	}
	if o.RawConfig == nil {
		var err error
		if o.RawConfig, err = json.Marshal(o.Config); err != nil {
			return nil, fmt.Errorf("the network configuration cannot be cached: %w", err)
		}
	}
	k := &Keeper{store: store, o: o, log: o.Logger, changed: make(chan struct{}, 1), process: randomIdentity(), in: newInbox()}
	k.proven.Store(!o.Unproven)
	k.local = k.prepare(o.Local)
	k.previous = o.Previous.masked() // subnet.env has the gateway's address
	k.status.State = Acquiring
	k.restore()
	return k, nil
}

// restore takes up the cached state, if there is one of this node.
func (k *Keeper) restore() {
	c := k.o.Cached
	if c == nil {
		return
	}
	k.restored, k.o.Cached = true, nil // which is not needed any more once the store was heard
	k.mem, k.cached = c.Memory.Expire(time.Now()), c.Memory.Records()
	if c.Own.Subnets == (Subnets{}) || c.Own.Node() != k.o.Node {
		return
	}
	k.held, k.began = &holding{Record: c.Own, at: c.Own.Revision}, true
	k.previous = c.Own.Subnets
	k.status.State = Unconfirmed
}

// prepare returns a copy of l with our identity in it.
func (k *Keeper) prepare(l Local) Local {
	w := Weft{}
	if l.Attrs.Weft != nil {
		w = *l.Attrs.Weft
	}
	w.Node, w.State = k.o.Node, k.o.State
	w.Recv, w.Addrs = slices.Clone(w.Recv), slices.Clone(w.Addrs)
	l.Attrs.Weft = &w
	l.Underlay, l.Store = slices.Clone(l.Underlay), slices.Clone(l.Store)
	return l
}

// SetLocal changes what we say about ourselves. A record that says something else
// is rewritten soon after. It never blocks.
func (k *Keeper) SetLocal(l Local) {
	l = k.prepare(l)
	k.mu.Lock()
	same := k.local.equal(l)
	k.local = l
	k.mu.Unlock()
	if !same {
		k.poke()
	}
}

// Proven says that Config can be served: from now on it is what the cache holds. It never blocks.
func (k *Keeper) Proven() {
	if !k.proven.Swap(true) {
		k.poke()
	}
}

// poke has the loop look again.
func (k *Keeper) poke() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

func (k *Keeper) currentLocal() Local {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.local
}

func (k *Keeper) self() Self {
	a := k.currentLocal().Attrs
	return Self{Node: k.o.Node, State: k.o.State, PublicIP: a.PublicIP, PublicIPv6: a.PublicIPv6}
}

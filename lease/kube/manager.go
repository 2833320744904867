package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weft/lease"
)

// Options is what a manager needs. Required: Node, Config, RawConfig and Local.Attrs.
type Options struct {
	// Node is our identity.
	Node string
	// State names our state directory (see lease.LoadState); "" if there is none.
	State string
	// Underlay is asked whether another machine of our Node's name lives; nil for nobody.
	Underlay lease.Underlay
	// Config is the network, and RawConfig the text that it was read from. It stays until a restart.
	Config    lease.NetworkConfig
	RawConfig []byte
	// Backend is what has to be known here of the one that Config names.
	Backend Backend
	// Unproven says that nobody knows yet whether Config can be served: nothing is cached, so
	// that what is stays, until Proven is called.
	Unproven bool
	// Local is what we say about ourselves at first; see SetLocal.
	Local lease.Local
	// Cache keeps the last good state; nil for none. Cached is what it held, nil if nothing:
	// with it, Run serves at once.
	Cache  *lease.Cache
	Cached *lease.Cached
	// Publish gets every new complete Set, from one goroutine at a time. It must not block:
	// hand the set to a channel that keeps the latest. nil drops them.
	Publish func(lease.Set)
	// Logger gets one line per change of state; nil drops them.
	Logger *slog.Logger
}

// Backend is what the type of a network's backend means for annotations.
type Backend struct {
	// Alone says that it has no peers: no Node but our own is looked at.
	Alone bool
	// DataV4 and DataV6 say that a node without BackendData, or without BackendV6Data, takes no part in that
	// family: its address there is not written either.
	DataV4, DataV6 bool
}

// Manager keeps our Node's annotations and publishes what the other Nodes say. Its methods are
// safe for concurrent use; Run is called once.
type Manager struct {
	client *Client
	o      Options
	log    *slog.Logger
	pace   pace

	nodes atomic.Pointer[nodes] // nil until our Node's name is known
	state loopState

	proven  atomic.Bool  // Config may be cached
	heardAt atomic.Int64 // when the API server was last heard, in Unix nanoseconds; 0 for never
	wake    chan struct{}
	write   chan struct{}
	echo    chan bool // capacity 1: what a round of asking met

	mu         sync.Mutex // protects what follows
	local      lease.Local
	told       bool   // the daemon has said how the data path is
	broken     string // what is wrong with it; "" if packets flow
	former     string // pods have addresses of subnets that are not ours any more; "" if none have
	cacheErr   error  // why the state is not saved
	status     lease.Status
	own        lease.Subnets // what our annotations stand for; zero while they must not be written
	judged     bool          // it is known whether our Node is another machine's: nothing is written to it before
	waits      bool          // it is: nothing is written to it
	overwrite  [2]netip.Addr // what an administrator has us publish instead
	watchErr   error         // why the watch is silent
	probeErr   error         // why the API server did not answer a question
	silentFrom time.Time     // since when it is silent; zero while it is not
	writeErr   error         // what the last write met
	refused    bool          // by the API server, which has answered
	cutOff     bool          // the stop did not wait for the answer to a write that says pods have a network
	written    bool          // our annotations have been as they should be, since the start
}

// pace is the times that a test shortens.
type pace struct {
	probe, answer, retryFirst, retryMost time.Duration
	broken, concern, beat                time.Duration
}

// loopState belongs to Run's loop.
type loopState struct {
	peers    lease.Outlook
	saver    lease.Saver
	held     lease.Record // our own; its Subnets are zero while we have none
	ownUID   string       // of our Node, when it was last seen
	source   source
	began    source // what source was at the start
	tenure   tenure
	once     []lease.Record // peers of an earlier set, whose Nodes still have their podCIDRs
	namesake namesake
	ask      func(lease.Attrs) // begins a round of asking
}

// tenure is how we have our podCIDR.
type tenure uint8

const (
	seeking tenure = iota // there was none since the start, but perhaps in the last run
	given                 // our Node has it, or had it, and no other Node has
	lost                  // another Node has it
)

// source is what the peers that we go by are of.
type source uint8

const (
	sourceNone   source = iota // there are none
	sourceCache                // the last run's state: a set can be made, and nothing is saved
	sourceServer               // the API server has told us everything, since the start
)

// NewManager returns a manager that does nothing yet. The error joins every fault in the options.
func NewManager(c *Client, o Options) (*Manager, error) {
	var faults []error
	if _, err := lease.DecodeWeft(fmt.Appendf(nil, "{\"Node\":%q}", o.Node)); err != nil {
		faults = append(faults, fmt.Errorf("node id %q is not valid", clip(o.Node)))
	}
	if !o.Config.EnableIPv4 && !o.Config.EnableIPv6 || len(o.RawConfig) == 0 {
		faults = append(faults, errors.New("the network configuration is missing"))
	}
	if a := o.Local.Attrs; !a.PublicIP.IsValid() && !a.PublicIPv6.IsValid() {
		faults = append(faults, errors.New("there is no address to publish"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Publish == nil {
		o.Publish = func(lease.Set) {}
	}
	m := &Manager{
		client: c, o: o, log: o.Logger, wake: make(chan struct{}, 1), write: make(chan struct{}, 1), echo: make(chan bool, 1),
		pace: pace{probe: probeAfter, answer: probeTimeout, retryFirst: time.Second, retryMost: time.Minute, broken: brokenFor, concern: concernFor, beat: beatLeast},
	}
	m.proven.Store(!o.Unproven)
	m.local = m.prepare(o.Local)
	m.status.State = lease.Acquiring
	m.restore()
	return m, nil
}

// restore takes up the cached state, if there is one of this node.
func (m *Manager) restore() {
	c := m.o.Cached
	if c == nil {
		return
	}
	m.o.Cached = nil // which is not needed any more once the API server was heard
	m.state.source, m.state.began = sourceCache, sourceCache
	mem := c.Memory.Expire(time.Now())
	mem.Peers = slices.Clone(mem.Peers)
	for i := range mem.Peers {
		// The file is written when something changes, which may be long ago: a Node lasts
		// until it is deleted.
		if p := &mem.Peers[i]; !p.Held {
			p.Until = time.Now().Add(lease.TTL)
		}
	}
	m.state.peers = lease.NewOutlook(mem)
	if c.Own.Subnets == (lease.Subnets{}) || c.Own.Node() != m.o.Node {
		return
	}
	m.state.held = c.Own
	if c.Own.Kube != nil {
		m.state.ownUID = c.Own.Kube.UID
	}
	m.status.State, m.status.Own = lease.Unconfirmed, c.Own
}

// prepare returns a copy of l with our identity in it.
func (m *Manager) prepare(l lease.Local) lease.Local { return l.Signed(m.o.Node, m.o.State) }

// SetLocal changes what we say about ourselves; annotations that say something else are
// rewritten soon after. It never blocks.
func (m *Manager) SetLocal(l lease.Local) {
	l = m.prepare(l)
	m.mu.Lock()
	same := m.local.Equal(l)
	m.local = l
	m.mu.Unlock()
	if !same {
		poke(m.wake)
		poke(m.write)
	}
}

// Proven says that Config can be served: from now on it is what the cache holds. It never blocks.
func (m *Manager) Proven() {
	if !m.proven.Swap(true) {
		poke(m.wake)
	}
}

// SetDataPath says whether this node carries packets: broken is "" if it does, else what is
// wrong. former says which pods have addresses of subnets that are not ours any more; "" for none. What
// lasts our Node's condition NetworkUnavailable says, and an Event. It never blocks.
func (m *Manager) SetDataPath(broken, former string) {
	m.mu.Lock()
	changed := !m.told || m.broken != broken || m.former != former
	m.told, m.broken, m.former = true, broken, former
	m.mu.Unlock()
	if changed {
		poke(m.write)
	}
}

// poke wakes whoever waits on ch, which has room for one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// announced is what we publish of ourselves: what the daemon says, with an administrator's
// addresses instead of ours. Ours then are further sources, which peers on our side of a NAT see.
func (m *Manager) announced() (lease.Local, lease.Subnets) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.prepare(m.local)
	for i, into := range [...]*netip.Addr{&l.Attrs.PublicIP, &l.Attrs.PublicIPv6} {
		given := m.overwrite[i]
		if !given.IsValid() || *into == given {
			continue
		}
		if into.IsValid() && !slices.Contains(l.Attrs.Weft.Addrs, *into) {
			l.Attrs.Weft.Addrs = append(l.Attrs.Weft.Addrs, *into)
		}
		*into = given
		if !slices.Contains(l.Underlay, given) {
			l.Underlay = append(l.Underlay, given)
		}
	}
	return l, m.own
}

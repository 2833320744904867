package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"weft/lease"
	"weft/lease/internal/inbox"
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

// check returns every fault, joined.
func (o Options) check() error {
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
	return errors.Join(faults...)
}

// Backend is what the type of a network's backend means for annotations.
type Backend struct {
	// Alone says that it has no peers: no Node but our own is looked at.
	Alone bool
	// DataV4 and DataV6 say that a node without BackendData, or without BackendV6Data, takes no part in that
	// family: its address there is not written either.
	DataV4, DataV6 bool
}

// Manager keeps our Node's annotations, and publishes the records of the other Nodes. It carries out the
// effects of a core, with an API server, a clock and a disk. Its methods are safe for concurrent use; Run is
// called once.
type Manager struct {
	client *Client
	o      Options
	log    *slog.Logger
	in     *inbox.Inbox[news]

	mu    sync.Mutex // protects what follows
	life  *Life
	local lease.Local // the latest that was said of us
	path  *DataPath   // the latest that was said of it; nil for nothing
}

// NewManager returns a manager that does nothing yet. The error joins every fault in the options.
func NewManager(c *Client, o Options) (*Manager, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Publish == nil {
		o.Publish = func(lease.Set) {}
	}
	core := newCore(c.keys, c.cfg.SetNodeNetworkUnavailable, o, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), time.Now())
	o.Cached = nil // the core has it, as long as it is needed
	m := &Manager{client: c, o: o, log: o.Logger, in: inbox.New((*news).merge), local: core.Local}
	m.life = &Life{
		core:  core,
		heard: func() { m.in.Note(news{heard: time.Now()}) },
		tell: func(n news) {
			if n != (news{}) {
				m.in.Post(n)
			}
		},
	}
	return m, nil
}

// SetLocal changes what we say about ourselves; annotations that say something else are
// rewritten soon after. It never blocks.
func (m *Manager) SetLocal(l lease.Local) {
	l = l.Signed(m.o.Node, m.o.State)
	m.mu.Lock()
	same := m.local.Equal(l)
	m.local = l
	m.mu.Unlock()
	if !same {
		m.in.Post(news{local: &l})
	}
}

// Proven says that Config can be served: from now on it is what the cache holds. It never blocks.
func (m *Manager) Proven() { m.in.Post(news{proven: true}) }

// SetDataPath reports the state of the data path. broken is the fault for which this node carries no packets;
// former names pods with addresses of subnets that were ours; alone means that no peer answers. Each is ""
// for no fault. A fault that lasts is shown by our Node's condition NetworkUnavailable and by an Event. It
// never blocks.
func (m *Manager) SetDataPath(broken, former, alone string) {
	p := DataPath{broken, former, alone}
	m.mu.Lock()
	same := m.path != nil && *m.path == p
	m.path = &p
	m.mu.Unlock()
	if !same {
		m.in.Post(news{path: &p})
	}
}

// Status returns the present state; the caller owns it.
func (m *Manager) Status() lease.Status {
	m.mu.Lock()
	s, t := m.life.core.status(), m.life.table
	m.mu.Unlock()
	if heard := m.in.Peek().heard; heard.After(s.StoreSeen) { // of which nobody was woken
		s.StoreSeen = heard
	}
	if t != nil {
		s.Revision = t.at()
	}
	return s
}

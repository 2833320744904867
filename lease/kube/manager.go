package kube

import (
	"errors"
	"sync"
	"time"

	"weft/lease"
	"weft/lease/internal/inbox"
	"weft/lease/keeper"
)

// Options is what a manager needs: keeper.Options, of which it uses all but those about a subnet that is
// allocated and a record that ends, and the backend. Required: Node, Config, RawConfig and Local.Attrs.
type Options struct {
	keeper.Options
	// Backend is what has to be known here of the one that Config names.
	Backend Backend
}

// check joins the faults that NewLife does not find.
func (o Options) check() error {
	var faults []error
	if len(o.RawConfig) == 0 {
		faults = append(faults, errors.New("the text of the network configuration is missing"))
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
// effects of a Life, with an API server, a clock and a disk. Its methods are safe for concurrent use; Run is
// called once.
type Manager struct {
	client *Client
	o      Options
	in     *inbox.Inbox[news]

	mu   sync.Mutex // protects life
	life *Life
}

// NewManager returns a manager that does nothing yet. The error joins every fault in the options.
func NewManager(c *Client, o Options) (*Manager, error) {
	o.Options = o.Random()
	life, err := NewLife(c.cfg.AnnotationPrefix, c.cfg.SetNodeNetworkUnavailable, o, time.Now())
	if err != nil {
		return nil, err
	}
	o.Options = o.Silent()
	m := &Manager{client: c, o: o, in: inbox.New((*news).merge), life: life}
	life.heard = func() { m.in.Note(news{heard: time.Now()}) }
	life.tell = func(n news) {
		if n != (news{}) {
			m.in.Post(n)
		}
	}
	return m, nil
}

// SetLocal changes what we say about ourselves, which nobody may change any more; annotations that say
// something else are rewritten soon after. It never blocks.
func (m *Manager) SetLocal(l keeper.Local) { m.in.Post(news{local: &l}) }

// Proven says that Config can be served: from now on it is what the cache holds. It never blocks.
func (m *Manager) Proven() { m.in.Post(news{proven: true}) }

// SetDataPath reports the state of the data path. broken is the fault for which this node carries no packets;
// former names pods with addresses of subnets that were ours; alone means that no peer answers. Each is ""
// for no fault. A fault that lasts is shown by our Node's condition NetworkUnavailable and by an Event. It
// never blocks.
func (m *Manager) SetDataPath(broken, former, alone string) {
	m.in.Post(news{path: &DataPath{broken, former, alone}})
}

// Status returns the present state; the caller owns it.
func (m *Manager) Status() lease.Status {
	m.mu.Lock()
	s, t := m.life.status(), m.life.table
	m.mu.Unlock()
	if heard := m.in.Peek().heard; heard.After(s.StoreSeen) { // of which nobody was woken
		s.StoreSeen = heard
	}
	if t != nil {
		s.Revision = t.at()
	}
	return s
}

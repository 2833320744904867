package custody

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weft/cmd/internal/rights"
)

// Options say where descriptors are kept.
type Options struct {
	// Control is the path of weftd's control socket, beside which the holder listens; "" is for no holder.
	Control string
	// Owner names the state directory, so that descriptors come back to the same node only.
	Owner string
	// Timeout is how long a holder keeps descriptors while there is no weftd; 0 is for no holder.
	Timeout time.Duration
	// Inherited is what the program before left in this process; nil for nothing. Who keeps descriptors is told nothing
	// until Begin, so that nobody waits for that while packets do.
	Inherited *Inherited
	// Getenv reads the variables of the service manager.
	Getenv func(string) string
	Logger *slog.Logger
}

// StaleAfter is the time without a weftd after which what waits in a TUN's queue is discarded, instead of delivered, when
// the next one takes it up. The queue fills in a moment and then drops what comes, so it holds the oldest packets: after a restart
// those are what nothing shall be lost of, minutes later they are what nobody waits for, and a segment that is older than
// TCP assumes any to be (RFC 9293, 3.4.1) may be taken for one of another connection.
const StaleAfter = 30 * time.Second

// Who keeps descriptors, as Status says.
const (
	ByManager = "service manager"
	ByHolder  = "holder"
)

// Status says who keeps descriptors for this weftd.
type Status struct {
	// By is ByManager, ByHolder, or "" while nothing is kept.
	By string
	// PID is the holder's.
	PID int
	// Ports are those that were offered and PortDescriptors what is kept of them, if somebody keeps anything.
	Ports, PortDescriptors int
	// Items and Descriptors are what was not only offered: how many there are; Discarded is how many packets were too old when they were taken up.
	Items, Descriptors, Discarded int
	// Fault says why something is not kept, "" if everything is.
	Fault string
}

// Custody is weftd's side: it keeps descriptors with whom there is, gives everything to a new holder if the old one dies, and
// has what the last weftd left. It has duplicates of its own of all descriptors. Its methods are safe for concurrent use; those
// that talk to somebody may take seconds if that one is in trouble.
type Custody struct {
	o      Options
	socket string // of the holder, "" for none
	status atomic.Pointer[Status]
	wake   chan struct{}

	mu        sync.Mutex // protects what follows
	items     map[string]Item
	former    []Item // what the last weftd left; Kept hands it out once
	away      time.Duration
	manager   *manager // nil if there is none
	session   *session // nil if there is no holder
	pid       int
	discarded int
	faults    map[string]error // why items are not kept, by name; "" is for all of them
	owed      map[string]bool  // what a holder that did not answer has not been told to forget
	closed    bool
	silent    error           // why nobody waits for the holder's answer: it has not given the last one; nil if it does answer
	optional  map[string]bool // what is kept only where that is of use
	held      bool            // until Begin
	fresh     map[string]bool // what became another while that was so
	trying    chan struct{}   // closed when Run has tried to find a holder; nil while it does not
}

// Open takes up what the last weftd had kept. It always succeeds: who cannot be asked is in the log and in Status. The caller runs
// Run, and closes.
func Open(ctx context.Context, o Options) *Custody {
	c := &Custody{o: o, wake: make(chan struct{}, 1), items: map[string]Item{}, optional: map[string]bool{}, faults: map[string]error{}, owed: map[string]bool{}}
	if o.Control != "" {
		path, err := filepath.Abs(SocketFor(o.Control))
		if err != nil {
			path = SocketFor(o.Control)
		}
		c.socket = path
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []error
	c.manager, c.former, c.away, faults = openManager(o.Getenv)
	for _, err := range faults {
		o.Logger.Warn("not everything that the service manager kept can be used", "reason", err)
	}
	if o.Inherited != nil {
		c.inherit(*o.Inherited)
	} else {
		c.askHolder(ctx)
	}
	c.takeUp()
	c.publish()
	return c
}

// askHolder takes what a holder has, if there is one. It is told to end if it is not needed, or of no use.
func (c *Custody) askHolder(ctx context.Context) {
	if c.socket == "" {
		return
	}
	s, r, err := c.connect(ctx, false)
	if errors.Is(err, errNoHolder) {
		return
	}
	var no *refusedError
	if errors.As(err, &no) {
		r, _, err := End(ctx, c.socket)
		c.o.Logger.Warn("the holder keeps descriptors that are not this node's: it was told to end; the pods that they belong to have to be attached again", "pods", r.Items, "because", no.why, "error", err)
		return
	}
	if err != nil {
		c.lose(err)
		c.o.Logger.Warn("what the last weftd had kept cannot be asked for", "reason", err)
		return
	}
	items, err := s.take()
	if err != nil {
		c.o.Logger.Warn("the holder did not hand over everything", "got", len(items), "reason", err)
	}
	known := map[string]bool{}
	for _, i := range c.former {
		known[i.Name] = true
	}
	for _, i := range items {
		if known[i.Name] {
			rights.Close(i.FDs)
		} else {
			c.former = append(c.former, i)
		}
	}
	c.adopt(s, r)
}

// adopt makes s the session with the holder, which has said r.
func (c *Custody) adopt(s *session, r Report) {
	c.session, c.pid, c.away, c.silent = s, r.PID, max(c.away, r.AwayFor()), nil
}

// lose ends the session because of err. Of a holder that does not answer nobody waits for an answer any more, until Run has had one.
func (c *Custody) lose(err error) {
	if errors.Is(err, errSilent) && c.silent == nil {
		c.silent = fmt.Errorf("%w: see whether it is stopped (pgrep -af 'weftd holder'; kill -CONT continues one). It is asked again", err)
		if c.pid != 0 {
			c.silent = fmt.Errorf("%w: see whether process %d is stopped (kill -CONT %d continues it). It is asked again", err, c.pid, c.pid)
		}
	}
	if c.session != nil {
		c.session.close()
	}
	c.session = nil
	c.changed()
}

// takeUp makes items of what came, and discards what is too old.
func (c *Custody) takeUp() {
	manager := map[string]bool{}
	if c.manager != nil {
		for name := range c.manager.stored {
			manager[name] = true
		}
	}
	var alive []Item
	for _, i := range c.former {
		own, err := rights.Duplicate(i.FDs)
		if err != nil || i.gone() {
			rights.Close(own)
			rights.Close(i.FDs)
			c.unkeep(i.Name)
			if err != nil {
				c.o.Logger.Warn("descriptors that were kept cannot be used", "name", i.Name, "reason", err)
			}
			continue
		}
		if c.away > StaleAfter {
			for _, fd := range i.FDs {
				c.discarded += drain(fd)
			}
		}
		c.items[i.Name] = Item{i.Name, i.Meta, own}
		alive = append(alive, i)
	}
	c.former = alive
	if c.manager == nil || c.manager.most == 0 || c.session == nil {
		return
	}
	// The unit has got a descriptor store since.
	for name, i := range c.items {
		if !manager[name] {
			if err := c.manager.keep(i); err != nil {
				c.o.Logger.Warn("the holder goes on, since the service manager does not keep everything", "reason", err)
				return
			}
		}
	}
	c.endSession()
}

// unkeep has whoever keeps name forget it.
func (c *Custody) unkeep(name string) {
	delete(c.faults, name)
	if c.held {
		c.fresh[name] = true
		return
	}
	if c.manager != nil {
		c.manager.forget(name)
	}
	if c.session != nil {
		err := c.session.forget(name)
		if err == nil {
			return
		}
		c.lose(err) // Run gives a new one what is to be kept, and that is no more
	}
	if c.socket != "" && c.o.Timeout > 0 && (c.manager == nil || c.manager.most == 0) && len(c.owed) < maxItems {
		c.owed[name] = true // the same holder may answer again
	}
}

// endSession has the holder end.
func (c *Custody) endSession() {
	if c.session != nil {
		_, _ = c.session.report(end, "") // if it does not hear, its timeout ends it
		c.session.close()
		c.session, c.pid = nil, 0
	}
}

// connect returns a session with the holder, which is started if there is none and start says so, and what the holder says of itself. It needs
// no lock.
func (c *Custody) connect(ctx context.Context, start bool) (*session, Report, error) {
	p, err := openPlace(c.socket)
	if errors.Is(err, fs.ErrNotExist) && !start {
		return nil, Report{}, errNoHolder
	}
	if err != nil {
		return nil, Report{}, err
	}
	defer func() { _ = p.close() }() // nothing was written
	for try := 0; ; try++ {
		conn, err := p.dial(ctx)
		if errors.Is(err, errNoHolder) && start {
			conn, err = startHolder(ctx, p, c.o)
		}
		if err != nil {
			return nil, Report{}, err
		}
		s := newSession(conn)
		s.owner = c.o.Owner
		r, err := s.report(hello, s.owner)
		if err == nil {
			return s, r, nil
		}
		s.close()
		if !errors.Is(err, errOver) || try == 2 { // one that was about to end: it has removed its socket by now
			return nil, Report{}, err
		}
	}
}

// Kept returns, once, what the last weftd had kept under names that begin with prefix, in order of names, and how long there was
// none. The descriptors are the caller's. It is kept on until Forget says otherwise.
func (c *Custody) Kept(prefix string) (items []Item, away time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.former = slices.DeleteFunc(c.former, func(i Item) bool {
		ours := strings.HasPrefix(i.Name, prefix)
		if ours {
			items = append(items, i)
		}
		return ours
	})
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return items, c.away
}

// Forget ends the keeping of what has that name, if anything has.
func (c *Custody) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.publish()
	i, ok := c.items[name]
	if !ok {
		return
	}
	rights.Close(i.FDs)
	delete(c.items, name)
	delete(c.optional, name)
	c.unkeep(name)
	if len(c.items) == 0 { // that nobody could be found to keep anything is of no more interest
		delete(c.faults, "")
	}
}

// changed has Run look again.
func (c *Custody) changed() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Status returns at once.
func (c *Custody) Status() Status { return *c.status.Load() }

// publish makes the Status. The caller has the lock.
func (c *Custody) publish() {
	s := Status{Discarded: c.discarded}
	for name, i := range c.items {
		if c.optional[name] {
			s.Ports++
			s.PortDescriptors += len(i.FDs)
			continue
		}
		s.Items++
		s.Descriptors += len(i.FDs)
	}
	switch {
	case c.held || len(c.items) == 0:
	case c.manager != nil && c.manager.most > 0:
		s.By = ByManager
	case c.session != nil:
		s.By, s.PID = ByHolder, c.pid
	}
	if names := slices.Sorted(maps.Keys(c.faults)); len(names) > 0 {
		s.Fault = c.faults[names[0]].Error()
		if len(names) > 1 {
			s.Fault = fmt.Sprintf("%s (and %d more)", s.Fault, len(names)-1)
		}
	}
	if s.Fault == "" && s.By == ByHolder && s.Items > 0 {
		s.Fault = c.endsWithUs()
	}
	c.status.Store(&s)
	c.changed()
}

// Close leaves everything that is kept to the next weftd.
func (c *Custody) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if c.manager != nil {
		c.manager.stamp()
		c.manager.close()
	}
	if c.session != nil {
		c.session.close()
		c.session = nil // else Run would find it over again and again
	}
	var all []int // together: after the data plane's own these are the last of each
	for _, i := range append(slices.Collect(maps.Values(c.items)), c.former...) {
		all = append(all, i.FDs...)
	}
	rights.Close(all)
	c.items, c.former = map[string]Item{}, nil
}

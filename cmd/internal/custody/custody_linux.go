package custody

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"weft/cmd/internal/rights"
)

// Item is what is kept under one name. An Item that Take returns belongs to the caller, with its descriptors.
type Item struct {
	Name string
	// Meta says what the descriptors are. Custody does not look into it.
	Meta []byte
	// FDs holds no two duplicates of one descriptor, and none that another Item has: systemd would keep the
	// first one only.
	FDs []int
	// Optional is for what is kept only where it will outlive weftd: else no holder is started for it, and
	// that is no fault. It counts as a port.
	Optional bool
}

// Limits of one Item.
const (
	maxMeta = 64 << 10 // bytes
	maxFDs  = 252
)

// Options say where descriptors are kept.
type Options struct {
	// Control is the path of weftd's control socket, beside which the holder listens; "" is for no holder.
	Control string
	// Owner names the state directory, so that descriptors come back to the same node only.
	Owner string
	// Timeout is how long a holder keeps descriptors while there is no weftd; 0 is for no holder.
	Timeout time.Duration
	// Left is what the program before left in this process; nil for nothing. Custody takes it over, and
	// changes neither the shelf nor the index until Begin: the program before may come back to them.
	Left *Left
	// Getenv reads the variables of the service manager.
	Getenv func(string) string
	Logger *slog.Logger

	handed map[int]string // a test's, in the place of those that Getenv tells of
}

// Left is what one program leaves to the next one in the same process. Its descriptors belong to whoever has
// it.
type Left struct {
	// FDs are the descriptors by their numbers, the index among them.
	FDs map[uint64]int `json:"fds"`
	// Shelved are the numbers that the shelf has, and Holder is the process that is this shelf, 0 for the
	// service manager.
	Shelved []uint64 `json:"shelved,omitempty"`
	Holder  int      `json:"holder,omitempty"`
}

// Close closes the descriptors.
func (l *Left) Close() {
	rights.Close(slices.Collect(maps.Values(l.FDs)))
	l.FDs = nil
}

// StaleAfter is the time without a weftd after which the next one discards what waits in a TUN's queue. The
// queue fills in a moment and then drops what comes, so it holds the oldest packets. After a restart nothing
// of those shall be lost. Minutes later nobody waits for them, and TCP may take one for a segment of another
// connection (RFC 9293, 3.4.1).
const StaleAfter = 30 * time.Second

// Custody is weftd's side. It has duplicates of its own of all descriptors. Its methods are safe for
// concurrent use.
type Custody struct {
	o       Options
	socket  string   // of the holder, "" for none
	systemd *systemd // nil if the service manager keeps nothing
	begin   chan struct{}
	wake    chan struct{}
	stop    chan struct{}
	over    chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex // protects what follows
	index     *index
	items     map[string]entry
	dead      []int // descriptors of ours that are to be closed
	next      uint64
	away      time.Duration
	discarded int
	held      bool // until Begin
	closed    bool
	changes   uint64           // counts what has become another
	written   uint64           // the change up to which the index says everything
	tried     uint64           // the change up to which the goroutine has tried to make the shelf equal
	told      chan struct{}    // closed, and made anew, when tried grows
	fault     error            // the shelf's, of the last attempt
	faults    map[string]error // those of single items
	has       map[uint64]bool  // what the shelf has; only the goroutine writes it
	holder    int              // the process whose numbers are ours, 0 for none; only the goroutine writes it
	session   *session         // with it, nil for none; only the goroutine writes it
	former    *session         // with a holder that is of no more use once the shelf has everything
}

// Open takes up what the last weftd had kept. It always succeeds: the log and Status say who could not be
// asked. The caller closes.
func Open(ctx context.Context, o Options) *Custody {
	c := &Custody{
		o: o, systemd: newSystemd(o.Getenv), begin: make(chan struct{}), wake: make(chan struct{}, 1),
		stop: make(chan struct{}),
		over: make(chan struct{}), items: map[string]entry{}, next: 1, held: true, told: make(chan struct{}),
		faults: map[string]error{}, has: map[uint64]bool{}, changes: 1,
	}
	if o.Control != "" {
		c.socket = SocketFor(o.Control)
		if path, err := filepath.Abs(c.socket); err == nil {
			c.socket = path
		}
	}
	if o.Left != nil {
		c.load(o.Left.FDs, true)
		c.away, c.holder = 0, o.Left.Holder
		for _, n := range o.Left.Shelved {
			c.has[n] = true
		}
	} else {
		if c.systemd != nil { // the shelf that is ours comes first, since it keeps its numbers
			c.askStore()
			c.askHolder(ctx)
		} else {
			c.askHolder(ctx)
			c.askStore()
		}
		c.Begin()
	}
	if c.index == nil {
		x, err := newIndex()
		if err != nil {
			o.Logger.Error("nothing can be kept for the next weftd", "reason", err)
		}
		c.index = x
	}
	go c.keep()
	return c
}

// numbers returns so many new ones.
func (c *Custody) numbers(count int) (all []uint64) {
	for range count {
		all = append(all, c.next)
		c.next++
	}
	return all
}

// Begin lets the shelf and the index change. Without Options.Left they may from the first.
func (c *Custody) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.held = false
		close(c.begin)
	}
}

// Take returns, once, what the last weftd had kept under names that begin with prefix, in order of names, and
// how long there was none. It is kept on until Drop.
func (c *Custody) Take(prefix string) (items []Item, away time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.items)) {
		e := c.items[name]
		if e.taken || !strings.HasPrefix(name, prefix) {
			continue
		}
		e.taken = true
		c.items[name] = e
		own, err := rights.Duplicate(e.fds)
		if err != nil {
			c.o.Logger.Warn("descriptors that were kept cannot be used", "name", name, "reason", err)
			continue
		}
		items = append(items, Item{e.Name, e.Meta, own, e.Optional})
	}
	return items, c.away
}

// Put keeps duplicates of i's descriptors, which stay the caller's, in the place of what had that name. Without
// descriptors it changes only what is noted of that item, whose descriptors keep their numbers: a Put of the
// same ones would first take them from the shelf, since the service manager keeps none twice. Put waits for
// nobody: Wait does.
func (c *Custody) Put(i Item) error {
	own, err := rights.Duplicate(i.FDs)
	if err != nil {
		return fmt.Errorf("keep descriptors of %q: %w", i.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // the next weftd decides by now
		rights.Close(own)
		return nil
	}
	e := c.items[i.Name]
	if i.Name == "" || len(own)+len(e.fds) == 0 || len(own) > maxFDs || len(i.Meta) > maxMeta {
		rights.Close(own)
		return fmt.Errorf("keep %d descriptors of %q, with %d bytes about them: a name, 1 to %d descriptors and "+
			"at most %d bytes can be kept", len(own), i.Name, len(i.Meta), maxFDs, maxMeta)
	}
	if len(own) > 0 {
		c.dead = append(c.dead, e.fds...)
		e = entry{i.Name, nil, c.numbers(len(own)), i.Optional, own, true}
	}
	e.Meta = slices.Clone(i.Meta)
	c.items[i.Name] = e
	c.changed()
	return nil
}

// Drop ends the keeping of all whose names begin with prefix, and returns once the shelf has none of them,
// ctx ends, or the shelf does not answer.
func (c *Custody) Drop(ctx context.Context, prefix string) error {
	c.drop(func(name string) bool { return strings.HasPrefix(name, prefix) })
	return c.Wait(ctx, "")
}

// DropOne is Drop of the one item that has the name.
func (c *Custody) DropOne(ctx context.Context, name string) error {
	c.drop(func(n string) bool { return n == name })
	return c.Wait(ctx, "")
}

func (c *Custody) drop(which func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, e := range c.items {
		if which(name) {
			c.dead = append(c.dead, e.fds...)
			delete(c.items, name)
			delete(c.faults, name)
			c.changed()
		}
	}
	if c.held {
		rights.Close(c.dead)
		c.dead = nil
	}
}

// changed has the goroutine look. The caller has the lock.
func (c *Custody) changed() {
	c.changes++
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Wait returns once the shelf was made equal to the items as they are now, or that was tried. The error says
// why the item of that name, or with "" anything, is not kept. Nobody waits for a shelf that does not answer,
// nor before Begin.
func (c *Custody) Wait(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for change := c.changes; c.tried < change && !c.held && !c.closed && !errors.Is(c.fault, errSilent); {
		told := c.told
		c.mu.Unlock()
		select {
		case <-told:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if c.tried < change && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return cmp.Or(c.fault, c.faults[name])
}

// Status returns at once.
func (c *Custody) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Discarded: c.discarded}
	for _, e := range c.items {
		if e.Optional {
			s.Ports++
			s.PortDescriptors += len(e.fds)
			continue
		}
		s.Items++
		s.Descriptors += len(e.fds)
	}
	switch {
	case c.held || len(c.items) == 0:
	case c.systemd != nil:
		s.By = ByManager
	case c.session != nil:
		s.By, s.PID = ByHolder, c.holder
	}
	names := slices.Sorted(maps.Keys(c.faults))
	switch {
	case c.fault != nil:
		s.Fault = c.fault.Error()
	case len(names) > 0:
		s.Fault = fmt.Sprintf("%q: %v", names[0], c.faults[names[0]])
		if len(names) > 1 {
			s.Fault = fmt.Sprintf("%s (and %d more)", s.Fault, len(names)-1)
		}
	case s.By == ByHolder && s.Items > 0:
		s.Fault = c.endsWithUs()
	}
	return s
}

// endsWithUs says why the holder will end with weftd, "" if it will not as far as is known.
func (c *Custody) endsWithUs() string {
	switch {
	case os.Getpid() == 1:
		return "weftd is the first process of a container, and the kernel ends the holder with it: outside " +
			"of a container, or with systemd, pods outlive a restart"
	case c.o.Getenv("NOTIFY_SOCKET") != "":
		// it ends all processes of a unit together, unless KillMode= says otherwise
		return "the service manager keeps no descriptors for weftd, and ends the holder with it: set " +
			"FileDescriptorStoreMax= and FDSTORE in weftd's unit, as the shipped one does"
	}
	return ""
}

// Leave returns duplicates of all that is kept, with the index, for the program that takes this one's place.
func (c *Custody) Leave() (l Left, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.index == nil {
		return l, errNoIndex
	}
	if !c.held { // else the index is as the program before left it, and fits to what it left
		if err := c.index.write(c.entries()); err != nil {
			return l, err
		}
	}
	l = Left{FDs: map[uint64]int{}, Shelved: slices.Sorted(maps.Keys(c.has)), Holder: c.holder}
	all := append(c.entries(), entry{Numbers: []uint64{0}, fds: []int{c.index.fd()}})
	for _, e := range all {
		own, err := rights.Duplicate(e.fds)
		if err != nil {
			l.Close()
			return Left{}, err
		}
		for k, n := range e.Numbers {
			l.FDs[n] = own[k]
		}
	}
	return l, nil
}

// entries are all items, in order of numbers. The caller has the lock.
func (c *Custody) entries() []entry { return slices.SortedFunc(maps.Values(c.items), byNumber) }

// Close leaves everything that is kept to the next weftd.
func (c *Custody) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	close(c.stop)
	close(c.told)
	c.told = make(chan struct{})
	c.mu.Unlock()
	<-c.over
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []*session{c.session, c.former} {
		if s != nil {
			s.close()
		}
	}
	all := c.dead // together: after the data plane's own these are the last of each
	for _, e := range c.items {
		all = append(all, e.fds...)
	}
	rights.Close(all)
	c.items, c.dead, c.session = map[string]entry{}, nil, nil
	if c.index != nil {
		if !c.held {
			c.index.stamp()
		}
		c.index.close()
		c.index = nil
	}
}

package custody

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
)

// HoldOptions are what a holder is started with.
type HoldOptions struct {
	// Socket is the path at which it listens; Listener is bound there, and listens already. Hold closes it.
	Socket   string
	Listener *net.UnixListener
	// Owner names the state directory of the weftd that started it.
	Owner string
	// Timeout is how long descriptors are kept while there is no weftd.
	Timeout time.Duration
	// Items are kept from the start. Their descriptors are Hold's.
	Items []Item
}

const (
	// lookEvery is how often a holder without a weftd looks whether devices are gone. With a weftd it looks at nothing, since
	// that reads the devices and says what to forget.
	lookEvery = time.Second
	// emptyFor is how long a holder with nothing to keep waits for something.
	emptyFor = 3 * time.Second
	// maxConns is how many connections there may be. One more takes the place of the oldest that has not said hello.
	maxConns = 8
	// answerWait is how long an answer may wait for a peer that does not read.
	answerWait = 5 * time.Second
	// spareFDs are descriptors that a holder needs besides those that it keeps.
	spareFDs = 64
)

// holder is a process's state.
type holder struct {
	o     HoldOptions
	place *place
	inode uint64 // of our socket's file
	room  int    // how many descriptors it may keep
	wake  chan struct{}

	mu          sync.Mutex // protects what follows
	items       map[string]Item
	descriptors int
	metaTotal   int
	conns       []*conn // the oldest first
	away        time.Time
	empty       time.Time
	ended       bool
}

// conn is one connection. weftd says that it said hello; the holder's lock protects that.
type conn struct {
	*net.UnixConn
	weftd  bool
	before time.Duration // how long there was no weftd when this one came
}

// Hold keeps what it is given until there is nothing more to keep, until nobody has come for it for as long as o says, until it
// is told to end, or until ctx ends. Then it removes its socket.
func Hold(ctx context.Context, o HoldOptions) error {
	p, err := openPlace(o.Socket)
	if err != nil {
		return errors.Join(err, o.Listener.Close())
	}
	defer func() { _ = p.close() }() // nothing was written
	h := &holder{o: o, place: p, inode: p.inode(), room: descriptorRoom(), wake: make(chan struct{}, 1), items: map[string]Item{}, away: time.Now(), empty: time.Now()}
	for _, i := range o.Items {
		h.keep(i)
	}
	var wg sync.WaitGroup
	wg.Go(func() { h.accept(&wg) })
	h.watch(ctx)
	if h.place.inode() == h.inode { // as long as we listen, nobody puts another socket there
		err = p.remove()
	}
	err = errors.Join(err, o.Listener.Close())
	h.mu.Lock()
	h.ended = true
	for _, c := range h.conns {
		_ = c.Close() // nothing was written that a close could lose
	}
	h.mu.Unlock()
	wg.Wait()
	h.clear()
	return err
}

// ListenInPlace listens where the holder of the weftd with that control socket does. One that is there drops everything
// and ends.
func ListenInPlace(ctx context.Context, control string) (socket string, l *net.UnixListener, err error) {
	if socket, err = filepath.Abs(SocketFor(control)); err != nil {
		return "", nil, err
	}
	p, err := openPlace(socket)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = p.close() }() // nothing was written
	for end := time.Now().Add(askWait); ; time.Sleep(askWait / 500) {
		if _, _, err := End(ctx, socket); err != nil && !errors.Is(err, errOver) {
			return "", nil, err
		}
		if l, err = p.listen(ctx); err == nil || time.Now().After(end) {
			return socket, l, err
		}
	}
}

// descriptorRoom returns how many descriptors this process may keep.
func descriptorRoom() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur > maxDescriptors+spareFDs {
		return maxDescriptors
	}
	return max(int(l.Cur)-spareFDs, 0)
}

// watch returns when the holder shall end.
func (h *holder) watch(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		wait, over := h.look(time.Now())
		if over {
			return
		}
		if t.Stop(); wait > 0 {
			t.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-t.C:
		}
	}
}

// changed has watch look again.
func (h *holder) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// look drops what is gone if nobody else does, and says whether the holder shall end, or when to look again: 0 is not before
// something changes.
func (h *holder) look(now time.Time) (wait time.Duration, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.away.IsZero() {
		h.dropGone()
	}
	switch {
	case h.ended:
		return 0, true
	case len(h.items) == 0 && now.Sub(h.empty) >= emptyFor:
		return 0, true
	case len(h.items) == 0:
		return min(emptyFor-now.Sub(h.empty), lookEvery), false
	case h.away.IsZero():
		return 0, false
	case now.Sub(h.away) >= h.o.Timeout:
		return 0, true
	case h.place.inode() != h.inode: // the next weftd would not find us
		return 0, true
	}
	return lookEvery, false
}

// dropGone drops the items of which a device is gone. The caller has the lock.
func (h *holder) dropGone() {
	for name, i := range h.items {
		if i.gone() {
			h.drop(name)
		}
	}
}

// drop closes what is kept as name. The caller has the lock.
func (h *holder) drop(name string) {
	i, ok := h.items[name]
	if !ok {
		return
	}
	rights.Close(i.FDs)
	delete(h.items, name)
	h.descriptors -= len(i.FDs)
	h.metaTotal -= len(i.Name) + len(i.Meta)
	if len(h.items) == 0 {
		h.empty = time.Now()
		h.changed()
	}
}

// clear drops everything.
func (h *holder) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range maps.Clone(h.items) {
		h.drop(name)
	}
}

// accept serves connections of our own user until the listener is closed.
func (h *holder) accept(wg *sync.WaitGroup) {
	for {
		u, err := h.o.Listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no more descriptors: those that there are end sooner or later
			time.Sleep(lookEvery / 10)
			continue
		}
		if rights.SameUser(u) != nil {
			_ = u.Close() // root only gets here: the file is for our user alone
			continue
		}
		c := &conn{UnixConn: u}
		if !h.add(c) {
			_ = u.Close() // nothing was written
			continue
		}
		wg.Go(func() { h.serve(c) })
	}
}

// add takes c up, in the place of the oldest silent one if there are too many.
func (h *holder) add(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	if len(h.conns) >= maxConns {
		silent := slices.IndexFunc(h.conns, func(o *conn) bool { return !o.weftd })
		if silent < 0 {
			return false
		}
		_ = h.conns[silent].Close() // its goroutine takes it out of the list
		h.conns = slices.Delete(h.conns, silent, silent+1)
	}
	h.conns = append(h.conns, c)
	return true
}

// remove forgets c. The time without a weftd begins when the last one goes.
func (h *holder) remove(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = c.Close() // its answers were read, or nobody reads them
	h.conns = slices.DeleteFunc(h.conns, func(o *conn) bool { return o == c })
	if c.weftd && !slices.ContainsFunc(h.conns, func(o *conn) bool { return o.weftd }) {
		h.away = time.Now()
		h.changed()
	}
}

// serve answers c's requests until that closes, or does not read the answers.
func (h *holder) serve(c *conn) {
	defer h.remove(c)
	b := make([]byte, maxMessage+1)
	for {
		m, fds, err := receive(c.UnixConn, b)
		if err != nil {
			rights.Close(fds)
			if !errors.Is(err, errTruncated) {
				// What does not speak the protocol is told so once, and gets no second packet read.
				h.answer(c, message{verb: refused, body: []byte(sentence(err))}, nil)
				return
			}
			m = message{}
		}
		a, give := h.handle(c, m, fds, err)
		ok := h.answer(c, a, give)
		rights.Close(give)
		if !ok || m.verb == end && a.verb == done {
			return
		}
	}
}

func (h *holder) answer(c *conn, m message, fds []int) bool {
	if err := c.SetWriteDeadline(time.Now().Add(answerWait)); err != nil {
		return false
	}
	return send(c.UnixConn, m, fds) == nil
}

// handle does what m asks for. It takes fds over, and what it gives belongs to the caller. fault is of the receiving.
func (h *holder) handle(c *conn, m message, fds []int, fault error) (answer message, give []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.verb != keep || fault != nil {
		rights.Close(fds)
	}
	if fault == nil && !c.weftd && (m.verb == keep || m.verb == forget || m.verb == next) {
		fault = errStranger
		if m.verb == keep {
			rights.Close(fds)
		}
	}
	if fault != nil {
		return refusal(fault), nil
	}
	switch m.verb {
	case hello:
		return h.greet(c, m.name), nil
	case keep:
		return h.keep(Item{Name: m.name, Meta: slices.Clone(m.body), FDs: fds}), nil
	case forget:
		h.drop(m.name)
		return message{verb: done}, nil
	case next:
		return h.next(m.name)
	case look:
		return message{verb: done, body: h.report(c)}, nil
	case end:
		a := message{verb: done, body: h.report(c)}
		h.ended = true
		h.changed()
		return a, nil
	case done, given, refused: // those are answers
	}
	return refusal(errMalformed), nil
}

func (h *holder) greet(c *conn, owner string) message {
	if owner != h.o.Owner {
		return refusal(fmt.Errorf("it keeps descriptors for the state directory %.40q, and this weftd's is %.40q", h.o.Owner, owner))
	}
	if !h.away.IsZero() {
		h.dropGone()
		c.before = time.Since(h.away)
	}
	for _, o := range h.conns { // what an earlier connection said while this process was stopped counts no more: there is one weftd
		o.weftd = false
	}
	c.weftd, h.away = true, time.Time{}
	return message{verb: done, body: h.report(c)}
}

// keep takes i in the place of what has its name. What cannot be kept leaves everything as it was.
func (h *holder) keep(i Item) message {
	old := h.items[i.Name]
	descriptors := h.descriptors - len(old.FDs) + len(i.FDs)
	meta := h.metaTotal + len(i.Meta) - len(old.Meta)
	count := len(h.items)
	if len(old.FDs) == 0 {
		count, meta = count+1, meta+len(i.Name)
	}
	err := i.check()
	switch {
	case err != nil:
	case descriptors > h.room:
		err = fmt.Errorf("the holder keeps %d descriptors, and %d more are too many: its RLIMIT_NOFILE, or its own limit of %d, leaves %d", h.descriptors, len(i.FDs), maxDescriptors, h.room)
	case count > maxItems:
		err = fmt.Errorf("the holder keeps the descriptors of %d pods, and cannot keep more", maxItems)
	case meta > maxMetaTotal:
		err = fmt.Errorf("the holder keeps %d bytes about descriptors, and %d more are too many", h.metaTotal, len(i.Meta))
	}
	if err != nil {
		rights.Close(i.FDs)
		return refusal(err)
	}
	h.drop(i.Name)
	h.items[i.Name] = i
	h.descriptors += len(i.FDs)
	h.metaTotal += len(i.Name) + len(i.Meta)
	return message{verb: done}
}

// next returns the item that follows after, with duplicates of its descriptors, since another connection may have it forgotten
// while it is sent.
func (h *holder) next(after string) (message, []int) {
	name := ""
	for n := range h.items {
		if n > after && (name == "" || n < name) {
			name = n
		}
	}
	if name == "" {
		return message{verb: done}, nil
	}
	i := h.items[name]
	give, err := rights.Duplicate(i.FDs)
	if err != nil {
		return refusal(err), nil
	}
	return message{verb: given, name: name, body: i.Meta}, give
}

func (h *holder) report(c *conn) []byte {
	r := Report{PID: os.Getpid(), Owner: h.o.Owner, Items: len(h.items), Descriptors: h.descriptors, Room: h.room - h.descriptors, Away: c.before.Milliseconds()}
	if !h.away.IsZero() {
		away := time.Since(h.away)
		r.Away, r.Left = away.Milliseconds(), max(h.o.Timeout-away, 0).Milliseconds()
	}
	return r.append()
}

func refusal(err error) message { return message{verb: refused, body: []byte(sentence(err))} }

// sentence returns err's text, no longer than a message's body may be.
func sentence(err error) string {
	text := err.Error()
	return text[:min(len(text), 1024)]
}

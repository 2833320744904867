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
	// Socket is the path at which it listens. Listener is bound there, and listens already; Hold closes it.
	Socket   string
	Listener *net.UnixListener
	// Owner names the state directory of the weftd that started it.
	Owner string
	// Timeout is how long descriptors are kept while there is no weftd.
	Timeout time.Duration
	// FDs are kept from the start, by number. They are Hold's.
	FDs map[uint64]int
}

const (
	// lookEvery is how often a holder without a weftd looks whether devices are gone. With a weftd it does
	// not look: that reads the devices, and drops what is gone.
	lookEvery = time.Second
	// emptyFor is how long a holder with nothing to keep waits for something.
	emptyFor = 3 * time.Second
	// answerWait is how long an answer may wait for a peer that does not read.
	answerWait = 5 * time.Second
	// spareFDs are descriptors that a holder needs besides those that it keeps, of which there are heldMost
	// at most.
	spareFDs = 64
	heldMost = 16 << 10
)

// holder is a process's state.
type holder struct {
	o     HoldOptions
	place *place
	inode uint64 // of our socket's file
	room  int    // how many descriptors it may keep
	wake  chan struct{}

	mu    sync.Mutex // protects what follows
	fds   map[uint64]int
	conns map[*net.UnixConn]uint64 // with the order in which they came
	came  uint64
	weftd *net.UnixConn // the one that said hello last, nil while there is no weftd
	away  time.Time     // since when there is none
	empty time.Time     // since when there is nothing to keep
	ended bool
}

// Hold keeps what it is given until there is nothing more to keep, until nobody has come for it for as long
// as o says, until it is told to end, or until ctx ends. Then it removes its socket.
func Hold(ctx context.Context, o HoldOptions) error {
	p, err := openPlace(o.Socket)
	if err != nil {
		return errors.Join(err, o.Listener.Close())
	}
	defer func() { _ = p.close() }() // nothing was written
	h := &holder{
		o: o, place: p, inode: p.inode(), room: descriptorRoom(), wake: make(chan struct{}, 1),
		fds:   map[uint64]int{},
		conns: map[*net.UnixConn]uint64{}, away: time.Now(), empty: time.Now(),
	}
	maps.Copy(h.fds, o.FDs)
	var wg sync.WaitGroup
	wg.Go(func() { h.accept(&wg) })
	h.watch(ctx)
	if h.place.inode() == h.inode { // as long as we listen, nobody puts another socket there
		err = p.remove()
	}
	err = errors.Join(err, o.Listener.Close())
	h.mu.Lock()
	h.ended = true
	for c := range h.conns {
		_ = c.Close() // nothing was written that a close could lose
	}
	h.mu.Unlock()
	wg.Wait()
	rights.Close(slices.Collect(maps.Values(h.fds)))
	return err
}

// ListenInPlace listens where the holder of the weftd with that control socket does. One that is there drops
// everything and ends.
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
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur > heldMost+spareFDs {
		return heldMost
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

// look says whether the holder shall end, or when to look again: 0 is not before something changes.
func (h *holder) look(now time.Time) (wait time.Duration, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.weftd == nil {
		for _, e := range h.items() {
			if anyGone(e.fds) {
				h.drop(e.Numbers)
			}
		}
	}
	switch {
	case h.ended:
		return 0, true
	case h.nothing() && now.Sub(h.empty) >= emptyFor:
		return 0, true
	case h.nothing():
		return min(emptyFor-now.Sub(h.empty), lookEvery), false
	case h.weftd != nil:
		return 0, false
	case now.Sub(h.away) >= h.o.Timeout:
		return 0, true
	case h.place.inode() != h.inode: // the next weftd would not find us
		return 0, true
	}
	return lookEvery, false
}

// items are those that the index names, with the descriptors that stay the holder's. The caller has the lock.
func (h *holder) items() []entry {
	fd, ok := h.fds[0]
	if !ok {
		return nil
	}
	own, err := rights.Duplicate([]int{fd})
	if err != nil {
		return nil
	}
	x := openIndex(own[0])
	defer x.close()
	all, _ := x.whole(h.fds) // weftd says what is wrong with it
	return all
}

// nothing reports whether there is nothing but the index. The caller has the lock.
func (h *holder) nothing() bool {
	_, index := h.fds[0]
	return len(h.fds) == 0 || index && len(h.fds) == 1
}

// drop closes what is kept as numbers. The caller has the lock.
func (h *holder) drop(numbers []uint64) {
	var all []int
	for _, n := range numbers {
		if fd, ok := h.fds[n]; ok {
			all = append(all, fd)
			delete(h.fds, n)
		}
	}
	rights.Close(all)
	if h.nothing() {
		h.empty = time.Now()
		h.changed()
	}
}

// accept serves connections of our own user until the listener is closed.
func (h *holder) accept(wg *sync.WaitGroup) {
	for {
		c, err := h.o.Listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no more descriptors: those that there are end sooner or later
			time.Sleep(lookEvery / 10)
			continue
		}
		h.mu.Lock()
		welcome := !h.ended && rights.SameUser(c) == nil // root only gets here: the file is for our user alone
		if welcome {
			h.came++
			h.conns[c] = h.came
		}
		h.mu.Unlock()
		if !welcome {
			_ = c.Close() // nothing was written
			continue
		}
		wg.Go(func() { h.serve(c) })
	}
}

// serve answers c's requests until that closes, does not read the answers, or asks for what only weftd may.
func (h *holder) serve(c *net.UnixConn) {
	defer h.remove(c)
	for {
		m, fds, err := receive(c)
		if err != nil {
			rights.Close(fds)
			_ = h.answer(c, message{Refused: err.Error()}, nil)
			return
		}
		a, give, ok := h.handle(c, m, fds)
		ok = ok && h.answer(c, a, give)
		rights.Close(give)
		if !ok || m.Verb == verbEnd {
			return
		}
	}
}

func (h *holder) answer(c *net.UnixConn, m message, fds []int) bool {
	return c.SetWriteDeadline(time.Now().Add(answerWait)) == nil && send(c, m, fds) == nil
}

// remove forgets c. The time without a weftd begins when that goes.
func (h *holder) remove(c *net.UnixConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = c.Close() // its answers were read, or nobody reads them
	delete(h.conns, c)
	if h.weftd == c {
		h.weftd, h.away = nil, time.Now()
		h.changed()
	}
}

// handle does what m asks for. It takes fds over, and what it gives belongs to the caller. Without ok c is to
// be closed.
func (h *holder) handle(c *net.UnixConn, m message, fds []int) (a message, give []int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Verb == verbStore && h.weftd == c && len(fds) == 1 && len(m.Numbers) == 1 {
		return h.store(m.Numbers[0], fds[0]), nil, true
	}
	rights.Close(fds)
	report := h.report()
	switch {
	case m.Verb == verbHello && m.Owner != h.o.Owner:
		return message{Refused: fmt.Sprintf("it keeps descriptors for the state directory %.80q, and this "+
			"weftd's is %.80q", h.o.Owner, m.Owner)}, nil, true
	case m.Verb == verbHello && h.weftd != nil && h.conns[c] < h.conns[h.weftd]:
		// it was said while this process was stopped
		return message{}, nil, false
	case m.Verb == verbHello:
		h.weftd = c
		return message{Report: &report}, nil, true
	case m.Verb == verbLook:
		return message{Report: &report}, nil, true
	case m.Verb == verbEnd:
		h.ended = true
		h.changed()
		return message{Report: &report}, nil, true
	case h.weftd != c:
		return message{}, nil, false
	case m.Verb == verbRemove:
		h.drop(m.Numbers)
		return message{}, nil, true
	case m.Verb == verbTake:
		return h.take(m.Numbers)
	}
	return message{Refused: errMalformed.Error()}, nil, true
}

func (h *holder) store(n uint64, fd int) message {
	if before, ok := h.fds[n]; ok {
		rights.Close([]int{before})
		delete(h.fds, n)
	}
	if len(h.fds) >= h.room {
		rights.Close([]int{fd})
		return message{Refused: fmt.Sprintf("the holder keeps %d descriptors, and no more: its RLIMIT_NOFILE, or "+
			"its own limit of"+
			" %d, allows %d", len(h.fds), heldMost, h.room)}
	}
	h.fds[n] = fd
	return message{}
}

// take gives duplicates of what follows after, since another connection may have it dropped while it is sent.
func (h *holder) take(after []uint64) (a message, give []int, ok bool) {
	numbers := slices.Sorted(maps.Keys(h.fds))
	if len(after) > 0 {
		numbers = slices.DeleteFunc(numbers, func(n uint64) bool { return n <= after[0] })
	}
	a.Numbers = numbers[:min(takeMost, len(numbers))]
	for _, n := range a.Numbers {
		give = append(give, h.fds[n])
	}
	give, err := rights.Duplicate(give)
	if err != nil {
		return message{Refused: err.Error()}, nil, true
	}
	return a, give, true
}

// report says what is kept. The caller has the lock.
func (h *holder) report() Report {
	r := Report{PID: os.Getpid(), Owner: h.o.Owner}
	for _, e := range h.items() {
		r.Items++
		r.Descriptors += len(e.fds)
	}
	if h.weftd == nil {
		away := time.Since(h.away)
		r.Away, r.Left = away.Milliseconds(), max(h.o.Timeout-away, 0).Milliseconds()
	}
	return r
}

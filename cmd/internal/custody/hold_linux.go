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
	// lookEvery is how often a holder without a weftd looks whether its socket is still there.
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
	o      HoldOptions
	socket os.FileInfo // of our socket's file; nil if there was none
	room   int         // how many descriptors it may keep
	wake   chan struct{}

	mu    sync.Mutex // protects what follows
	fds   map[uint64]int
	weftd *client   // the one that said hello last, nil while there is no weftd
	since time.Time // since when there is none, or nothing to keep
	ended bool
}

// client is a connection, with the order in which they came.
type client struct {
	*net.UnixConn
	came int
}

// Hold keeps what it is given until there is nothing more to keep, until nobody has come for it for as long
// as o says, until it is told to end, until its socket is gone while there is no weftd, or until ctx ends. Then
// it removes its socket.
func Hold(ctx context.Context, o HoldOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &holder{o: o, room: descriptorRoom(), wake: make(chan struct{}, 1), fds: map[uint64]int{},
		since: time.Now()}
	maps.Copy(h.fds, o.FDs)
	var err error
	h.socket, err = os.Lstat(o.Socket)
	var wg sync.WaitGroup
	wg.Go(func() { h.accept(ctx, &wg) })
	h.watch(ctx)
	// As long as we listen, nobody puts another socket there; after a removal by hand somebody may.
	if h.reachable() {
		err = os.Remove(o.Socket)
	}
	err = errors.Join(err, o.Listener.Close())
	cancel() // which closes the connections
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
	for end := time.Now().Add(askWait); ; time.Sleep(askWait / 500) {
		if _, _, err := End(ctx, socket); err != nil && !errors.Is(err, errOver) {
			return "", nil, err
		}
		if l, err = listen(ctx, socket); err == nil || time.Now().After(end) {
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
	for {
		var over <-chan time.Time
		at, ends := h.ends()
		if left := time.Until(at); ends && (left <= 0 || !h.reachable()) {
			return
		} else if ends {
			over = time.After(min(left, lookEvery))
		}
		select {
		case <-ctx.Done():
			return
		case <-over: // unless somebody has come just now
		case <-h.wake:
		}
	}
}

// reachable reports whether the next weftd would find this holder: its socket is where it was.
func (h *holder) reachable() bool {
	now, err := os.Lstat(h.o.Socket)
	return h.socket != nil && err == nil && os.SameFile(h.socket, now)
}

// changed has watch look again. The caller has the lock.
func (h *holder) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// ends says when the holder ends, if nothing changes until then.
func (h *holder) ends() (at time.Time, ends bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return at, true
	case h.nothing():
		return h.since.Add(emptyFor), true
	}
	return h.since.Add(h.o.Timeout), h.weftd == nil
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
		h.since = time.Now()
		h.changed()
	}
}

// accept serves connections of our own user until the listener is closed.
func (h *holder) accept(ctx context.Context, wg *sync.WaitGroup) {
	for came := 0; ; came++ {
		c, err := h.o.Listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no more descriptors: those that there are end sooner or later
			time.Sleep(100 * time.Millisecond)
			continue
		case rights.SameUser(c) != nil: // root only gets here: the file is for our user alone
			_ = c.Close() // nothing was written
			continue
		}
		wg.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			h.serve(&client{c, came})
		})
	}
}

// serve answers c's requests until that closes, does not read the answers, or asks for what only weftd may.
func (h *holder) serve(c *client) {
	defer h.remove(c)
	for {
		m, fds, err := receive(c.UnixConn)
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

func (h *holder) answer(c *client, m message, fds []int) bool {
	return c.SetWriteDeadline(time.Now().Add(answerWait)) == nil && send(c.UnixConn, m, fds) == nil
}

// remove forgets c. The time without a weftd begins when that goes.
func (h *holder) remove(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = c.Close() // its answers were read, or nobody reads them
	if h.weftd == c {
		h.weftd, h.since = nil, time.Now()
		h.changed()
	}
}

// handle does what m asks for. It takes fds over, and what it gives belongs to the caller. Without ok c is to
// be closed.
func (h *holder) handle(c *client, m message, fds []int) (a message, give []int, ok bool) {
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
	case m.Verb == verbHello && h.weftd != nil && h.weftd.came > c.came:
		// it was said while this process was stopped
		return message{}, nil, false
	case m.Verb == verbHello:
		h.weftd = c
		h.changed()
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
	h.changed()
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
	r := Report{PID: os.Getpid(), Owner: h.o.Owner, Descriptors: len(h.fds)}
	if _, index := h.fds[0]; index {
		r.Descriptors--
	}
	if h.weftd == nil {
		away := time.Since(h.since)
		r.Away, r.Left = away.Milliseconds(), max(h.o.Timeout-away, 0).Milliseconds()
	}
	return r
}

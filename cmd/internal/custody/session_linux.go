package custody

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"weft/cmd/internal/rights"
)

// askWait bounds a request to a holder, which answers at once unless the machine is in trouble.
const askWait = 5 * time.Second

// keepWait bounds one for which somebody waits who attaches a pod, or detaches it. If a holder is slower than that, what it was to be told is told later.
const keepWait = time.Second

// session is a connection to a holder. Its methods are safe for concurrent use.
type session struct {
	c       *net.UnixConn
	owner   string     // whose descriptors are kept, as it was said
	mu      sync.Mutex // one request at a time
	answers chan answer
	// over is closed when the holder is gone, or was not what it should be.
	over chan struct{}
}

type answer struct {
	message
	fds []int
	err error
}

// newSession takes c over.
func newSession(c *net.UnixConn) *session {
	s := &session{c: c, answers: make(chan answer), over: make(chan struct{})}
	go s.read() // ends with the connection, which close or the holder closes
	return s
}

func (s *session) close() { _ = s.c.Close() } // every request was answered, or is given up

// read hands every answer to the request that waits for it.
func (s *session) read() {
	defer close(s.over)
	defer s.close()
	for {
		b := make([]byte, maxMessage+1)
		m, fds, err := receive(s.c, b)
		if err != nil && !errors.Is(err, errTruncated) && !errors.Is(err, errMalformed) {
			rights.Close(fds)
			return
		}
		t := time.NewTimer(askWait)
		select {
		case s.answers <- answer{m, fds, err}:
			t.Stop()
		case <-t.C: // nobody had asked, or nobody waits any more
			rights.Close(fds)
			return
		}
	}
}

// refusedError is a holder's refusal, in its words.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return "the holder refuses: " + e.why }

var (
	errSilent = errors.New("the holder does not answer")
	errOver   = errors.New("the holder has ended")
)

// ask sends m with fds, which stay the caller's, waits that long, and returns the answer, whose descriptors are the caller's. A refusal is a
// *refusedError. After any other error the session is over.
func (s *session) ask(m message, fds []int, wait time.Duration) (message, []int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(err error) (message, []int, error) {
		s.close()
		return message{}, nil, err
	}
	if err := s.c.SetWriteDeadline(time.Now().Add(wait)); err != nil {
		return fail(errOver)
	}
	if err := send(s.c, m, fds); errors.Is(err, os.ErrDeadlineExceeded) {
		return fail(errSilent)
	} else if err != nil {
		return fail(fmt.Errorf("%w: %w", errOver, err))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case a := <-s.answers:
		switch {
		case a.err != nil:
			rights.Close(a.fds)
			return fail(a.err)
		case a.verb == refused:
			rights.Close(a.fds)
			return message{}, nil, &refusedError{string(a.body)}
		}
		return a.message, a.fds, nil
	case <-s.over:
		return message{}, nil, errOver
	case <-t.C:
		return fail(errSilent)
	}
}

// report asks for one by verb: hello, look or end.
func (s *session) report(v verb, name string) (Report, error) {
	m, fds, err := s.ask(message{verb: v, name: name}, nil, askWait)
	rights.Close(fds)
	if err != nil {
		return Report{}, err
	}
	return parseReport(m.body)
}

func (s *session) keep(i Item) error {
	return s.do(message{verb: keep, name: i.Name, body: i.Meta}, i.FDs)
}

func (s *session) forget(name string) error {
	return s.do(message{verb: forget, name: name}, nil)
}

// do has the holder do something. The holder obeys who has said hello last: that may have been another connection of ours, which was not needed.
func (s *session) do(m message, fds []int) error {
	_, got, err := s.ask(m, fds, keepWait)
	rights.Close(got)
	if no := (*refusedError)(nil); !errors.As(err, &no) || no.why != errStranger.Error() {
		return err
	}
	if _, err := s.report(hello, s.owner); err != nil {
		return err
	}
	_, got, err = s.ask(m, fds, keepWait)
	rights.Close(got)
	return err
}

// take returns all that the holder keeps, in order of names. It goes on keeping it.
func (s *session) take() (items []Item, err error) {
	for name := ""; ; {
		m, fds, err := s.ask(message{verb: next, name: name}, nil, askWait)
		if err != nil {
			return items, err
		}
		if m.verb != given || m.name <= name || len(fds) == 0 {
			rights.Close(fds)
			return items, nil
		}
		name = m.name
		items = append(items, Item{m.name, m.body, fds})
	}
}

// once connects to the holder at path, if there is one, and asks it for a report by verb.
func once(ctx context.Context, path string, v verb) (Report, error) {
	p, err := openPlace(path)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = p.close() }() // nothing was written
	c, err := p.dial(ctx)
	if err != nil {
		return Report{}, err
	}
	s := newSession(c)
	defer func() { s.close(); <-s.over }()
	return s.report(v, "")
}

// Look asks the holder at path what it keeps, without being a weftd to it. ok is false if there is none.
func Look(ctx context.Context, path string) (r Report, ok bool, err error) {
	return found(once(ctx, path, look))
}

// End has the holder at path drop all that it keeps, and end. It returns what was there. ok is false if there is none.
func End(ctx context.Context, path string) (r Report, ok bool, err error) {
	return found(once(ctx, path, end))
}

package custody

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"time"

	"weft/cmd/internal/rights"
)

// message is one packet of the holder's socket, of type SOCK_SEQPACKET, in JSON. Descriptors come beside it,
// by SCM_RIGHTS. Each request has one answer, in order.
type message struct {
	Version int      `json:"version"`
	Verb    string   `json:"verb,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Numbers []uint64 `json:"numbers,omitempty"`
	// Refused says in an answer why nothing was done.
	Refused string  `json:"refused,omitempty"`
	Report  *Report `json:"report,omitempty"`
}

// Requests. A holder answers all but look and end only to the connection that said hello last.
const (
	verbHello  = "hello"  // Owner: whose descriptors are kept; from now on a weftd is there. Answer: a report
	verbStore  = "store"  // Numbers: one, with its descriptor, in the place of the one that has it
	verbRemove = "remove" // Numbers
	verbTake   = "take"   // Numbers: one. Answer: those that follow, at most takeMost, with their descriptors
	verbLook   = "look"   // Answer: a report
	verbEnd    = "end"    // drop everything and end. Answer: a report of what was there
)

const (
	// protocolVersion is of message and of what the verbs mean.
	protocolVersion = 2
	maxMessage      = 32 << 10 // bytes
	takeMost        = 200
	// askWait bounds a request to a holder, which answers at once unless the machine is in trouble.
	askWait = 5 * time.Second
)

var (
	errMalformed = errors.New("malformed message")
	errSilent    = errors.New("it does not answer")
	errOver      = errors.New("the holder has ended")
)

func send(c *net.UnixConn, m message, fds []int) error {
	m.Version = protocolVersion
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return rights.Send(c, b, fds)
}

// receive reads one packet. The descriptors belong to the caller, also those beside an error. One that wraps
// errMalformed is of this packet alone.
func receive(c *net.UnixConn) (m message, fds []int, err error) {
	b := make([]byte, maxMessage+1)
	got, err := rights.Receive(c, b, rights.Most)
	switch {
	case err != nil:
		return m, got.FDs, err
	case got.Lost:
		return m, got.FDs, fmt.Errorf("%w: not all its descriptors could be received (RLIMIT_NOFILE)", errMalformed)
	case got.Cut || json.Unmarshal(b[:got.N], &m) != nil:
		return m, got.FDs, errMalformed
	case m.Version != protocolVersion:
		return m, got.FDs, fmt.Errorf("%w: version %d of the holder's protocol, where this is %d",
			errMalformed, m.Version, protocolVersion)
	}
	return m, got.FDs, nil
}

// session is a connection to a holder, which is a shelf. One goroutine at a time may ask.
type session struct{ c *net.UnixConn }

func (s *session) close() { _ = s.c.Close() } // every request was answered, or is given up

// ask sends m with fds, which stay the caller's, and returns the answer, whose descriptors are the caller's.
// After an error that is no *refusedError the session is over.
func (s *session) ask(m message, fds ...int) (a message, got []int, err error) {
	if err = s.c.SetDeadline(time.Now().Add(askWait)); err == nil {
		if err = send(s.c, m, fds); err == nil {
			a, got, err = receive(s.c)
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("the holder: %w", errSilent)
	case err != nil && !errors.Is(err, errMalformed):
		err = fmt.Errorf("%w: %w", errOver, err)
	}
	if err != nil {
		s.close()
	} else if a.Refused != "" {
		err = &refusedError{a.Refused}
	}
	if err != nil {
		rights.Close(got)
		return message{}, nil, err
	}
	return a, got, nil
}

// report asks for one by m.
func (s *session) report(m message) (Report, error) {
	a, fds, err := s.ask(m)
	rights.Close(fds)
	if err == nil && a.Report == nil {
		err = errMalformed
	}
	if err != nil {
		return Report{}, err
	}
	return *a.Report, nil
}

// Store implements shelf.
func (s *session) Store(n uint64, fd int) error {
	_, got, err := s.ask(message{Verb: verbStore, Numbers: []uint64{n}}, fd)
	rights.Close(got)
	return err
}

// Remove implements shelf.
func (s *session) Remove(numbers ...uint64) error {
	for part := range slices.Chunk(numbers, 1000) {
		_, got, err := s.ask(message{Verb: verbRemove, Numbers: part})
		if rights.Close(got); err != nil {
			return err
		}
	}
	return nil
}

// Flush implements shelf: each answer said that it was done.
func (s *session) Flush() error { return nil }

// take returns duplicates of all that the holder keeps, by number.
func (s *session) take() (map[uint64]int, error) {
	all := map[uint64]int{}
	m := message{Verb: verbTake}
	for {
		a, fds, err := s.ask(m)
		if err != nil {
			return all, err
		}
		if len(a.Numbers) != len(fds) {
			rights.Close(fds)
			return all, errMalformed
		}
		if len(fds) == 0 {
			return all, nil
		}
		for k, n := range a.Numbers {
			if before, twice := all[n]; twice {
				rights.Close([]int{before})
			}
			all[n] = fds[k]
		}
		last := a.Numbers[len(fds)-1]
		if len(m.Numbers) == 1 && last <= m.Numbers[0] {
			return all, errMalformed
		}
		m.Numbers = []uint64{last}
	}
}

// connect returns a session with the holder, and what the holder says of itself. A holder is started if there
// is none and start says so.
func (c *Custody) connect(ctx context.Context, start bool) (*session, Report, error) {
	for try := 0; ; try++ {
		conn, err := dial(ctx, c.socket)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !start:
			return nil, Report{}, errNoHolder
		case errors.Is(err, errNoHolder) && start:
			conn, err = startHolder(ctx, c.socket, c.o)
		}
		if err != nil {
			return nil, Report{}, err
		}
		s := &session{conn}
		r, err := s.report(message{Verb: verbHello, Owner: c.o.Owner})
		if err == nil {
			return s, r, nil
		}
		s.close()
		if !errors.Is(err, errOver) || try == 2 { // one that was about to end has removed its socket by now
			return nil, Report{}, err
		}
	}
}

// once connects to the holder at path, if there is one, and asks it for a report. ok is false if there is
// none.
func once(ctx context.Context, path, verb string) (r Report, ok bool, err error) {
	c, err := dial(ctx, path)
	if err == nil {
		s := &session{c}
		defer s.close()
		r, err = s.report(message{Verb: verb})
	}
	if errors.Is(err, errNoHolder) || errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	return r, err == nil, err
}

// Look asks the holder at path what it keeps, without being a weftd to it. ok is false if there is none.
func Look(ctx context.Context, path string) (r Report, ok bool, err error) {
	return once(ctx, path, verbLook)
}

// End has the holder at path drop all that it keeps, and end. It returns what was there. ok is false if there
// is none.
func End(ctx context.Context, path string) (r Report, ok bool, err error) {
	return once(ctx, path, verbEnd)
}

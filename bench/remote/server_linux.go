package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"weft/bench/load"
	"weft/bench/machine"
)

// Options of a Server.
type Options struct {
	// Token, if not empty, is what a client has to know.
	Token string
	// Once ends the server after the first session. Wait, if not 0, ends it if no session
	// has begun after that time.
	Once bool
	Wait time.Duration
	// MaxRate limits how many packets a second a client can ask the server to send; it is 2 million
	// by default. MaxDuration limits one measurement to 60 s by default, and MaxSession a whole session to 2 h.
	MaxRate                 float64
	MaxDuration, MaxSession time.Duration
	Log                     *slog.Logger
}

// Server measures with one client at a time.
type Server struct {
	o Options
	l *net.TCPListener

	arrivals arrivals
	guesses  brake

	mu      sync.Mutex
	current *session
}

// Listen opens the server's port, or any free port if the port of at is 0.
func Listen(at netip.AddrPort, o Options) (*Server, error) {
	if o.MaxRate <= 0 {
		o.MaxRate = 2e6
	}
	if o.MaxDuration <= 0 {
		o.MaxDuration = time.Minute
	}
	if o.MaxSession <= 0 {
		o.MaxSession = 2 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	return &Server{o: o, l: l}, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.l.Addr().(*net.TCPAddr).AddrPort() }

// errServed is the cause with which a server's context ends when its only session (Options.Once) has ended.
var errServed = errors.New("the session has ended")

// Serve answers until ctx ends, or until the first session ends if Options.Once is set. It returns when
// all that it has started has ended.
func (s *Server) Serve(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	wait := s.o.Wait
	if wait <= 0 {
		wait = math.MaxInt64
	}
	waiting := time.AfterFunc(wait, func() { end(fmt.Errorf("nobody came for %s", wait)) })
	defer waiting.Stop()
	stop := context.AfterFunc(ctx, func() { _ = s.l.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := s.l.AcceptTCP()
		if err != nil {
			switch cause := context.Cause(ctx); {
			case errors.Is(cause, errServed), errors.Is(cause, context.Canceled):
				return nil
			case cause != nil:
				return cause
			case errors.Is(err, net.ErrClosed):
				return err
			}
			select { // there are no descriptors left, or the like: try again soon
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		n := &arrival{c: c, source: sourceOf(addrOf(c.RemoteAddr()))}
		if !s.arrivals.admit(n) {
			_ = c.Close()
			continue
		}
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			served := s.answer(ctx, n, waiting)
			if served && s.o.Once {
				end(errServed)
			}
		})
	}
}

// answer serves one connection and says whether it was a session.
func (s *Server) answer(ctx context.Context, n *arrival, waiting *time.Timer) (served bool) {
	c := n.c
	defer c.Close()
	defer s.arrivals.leave(n)
	_ = c.SetDeadline(time.Now().Add(helloTime))
	nonce := newSecret()
	if err := writeLine(c, greeting{Version, nonce}); err != nil {
		return false
	}
	in := newLines(c)
	var h hello
	if err := in.read(&h); err != nil {
		_ = writeLine(c, reply{Error: err.Error()})
		return false
	}
	s.arrivals.hear(n)
	refuse := func(format string, args ...any) bool {
		r := reply{Error: fmt.Sprintf(format, args...)}
		s.o.Log.Info("refused", "client", c.RemoteAddr(), "reason", r.Error)
		_ = writeLine(c, r)
		return false
	}
	switch {
	case h.Version != Version:
		return refuse("this is version %d of weft bench's protocol, and you have %d: use the same weft at both ends", Version, h.Version)
	case h.Session != "":
		s.data(ctx, n, h)
		return false
	}
	if s.o.Token != "" {
		right := proves(s.o.Token, nonce, h.Proof)
		switch examined, wait := s.guesses.try(time.Now(), n.source, right); {
		case !examined: // at debug level: there may be thousands a second
			s.o.Log.Debug("token not examined", "client", c.RemoteAddr())
			_ = writeLine(c, reply{Error: fmt.Sprintf("there were too many wrong tokens: try again in %s", wait.Round(100*time.Millisecond)+100*time.Millisecond)})
			return false
		case !right:
			return refuse("wrong token, or none: see --token of the server")
		}
	}
	look, err := machine.Observe()
	if err != nil {
		return refuse("the server cannot look at its machine: %v", err)
	}
	ses, busy := s.begin(c)
	if busy != nil {
		s.o.Log.Info("busy", "client", c.RemoteAddr())
		_ = writeLine(c, reply{Busy: true, Error: busy.Error()})
		return false
	}
	s.arrivals.leave(n)
	waiting.Stop()
	defer s.finish(ses)
	s.o.Log.Info("session begins", "client", c.RemoteAddr())
	err = ses.run(ctx, c, in, reply{Session: ses.name, Machine: &look.Machine})
	s.o.Log.Info("session ends", "client", c.RemoteAddr(), "after", time.Since(ses.start).Round(time.Millisecond), "cause", err)
	return true
}

// begin makes a session, unless there is one.
func (s *Server) begin(c *net.TCPConn) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil, fmt.Errorf("it measures with another client, for %s until now: try again later", time.Since(s.current.start).Round(time.Second))
	}
	s.current = &session{server: s, name: newSecret(), start: time.Now(), peer: addrOf(c.RemoteAddr()), local: addrOf(c.LocalAddr())}
	return s.current, nil
}

func (s *Server) finish(ses *session) {
	ses.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

// addrOf returns the address of a TCP end; an IPv4 address is never written as IPv6.
func addrOf(a net.Addr) netip.Addr { return a.(*net.TCPAddr).AddrPort().Addr().Unmap() }

// data serves a data connection of the current session.
func (s *Server) data(ctx context.Context, n *arrival, h hello) {
	c := n.c
	s.mu.Lock()
	ses := s.current
	s.mu.Unlock()
	if ses == nil || h.Session != ses.name || addrOf(c.RemoteAddr()) != ses.peer {
		_ = writeLine(c, reply{Error: "there is no such session"})
		return
	}
	if !ses.enter() {
		_ = writeLine(c, reply{Error: fmt.Sprintf("more than %d connections in one session", maxStreams)})
		return
	}
	defer ses.leave()
	s.arrivals.leave(n)
	if err := writeLine(c, reply{}); err != nil {
		return
	}
	_ = c.SetDeadline(time.Time{})
	fd, err := load.Adopt(c)
	if err != nil {
		s.o.Log.Warn("data connection", "error", err)
		return
	}
	if err := ses.carry(ctx, fd, h); err != nil {
		s.o.Log.Debug("data connection", "role", h.Role, "error", err)
	}
}

package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Listen opens the health server's port. A port that is taken is an error that
// says which flag chooses another.
func Listen(addr netip.Addr, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("health server: port %d on %s is taken by another process (see ss -ltnp): choose another with --healthz-port, or 0 for none", port, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("health server (--healthz-ip, --healthz-port): %w", err)
	}
	return l, nil
}

// These are flannel's answers to the byte, since scripts and probes compare them.
const (
	running  = "flanneld is running"
	ready    = "flanneld is ready"
	notReady = "flanneld is not ready yet"
)

// Handler serves health, readiness and what reg renders. The answers are flannel's. If the node is
// not ready, the reasons follow, each on a line of its own; if it is ready, the notes do. reasons
// says why the node is not ready; it and notes are called concurrently.
func Handler(reasons func() []string, reg *Registry, notes ...func() []string) http.Handler {
	metrics := newScrapes(reg)
	// A ServeMux would answer a path such as //x with a redirect that says the path again, so that whoever asks decides how
	// long the answer is.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ContentLength != 0: // nobody here reads a body
			text(w, http.StatusRequestEntityTooLarge, "a request without a body is wanted")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			text(w, http.StatusMethodNotAllowed, "GET is wanted")
		case r.URL.Path == "/healthz":
			text(w, http.StatusOK, running)
		case r.URL.Path == "/readyz":
			if why := reasons(); len(why) > 0 {
				text(w, http.StatusServiceUnavailable, notReady, why...)
				return
			}
			var more []string
			for _, f := range notes {
				more = append(more, f()...)
			}
			text(w, http.StatusOK, ready, more...)
		case r.URL.Path == "/metrics":
			metrics.ServeHTTP(w, r)
		default:
			text(w, http.StatusNotFound, "there are /healthz, /readyz and /metrics")
		}
	})
}

// OnlyHere returns h, but with /metrics only for clients on this host. why is the answer to others.
func OnlyHere(h http.Handler, why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r.Context()); c != nil && r.URL.Path == "/metrics" && !c.fromHere() {
			text(w, http.StatusForbidden, why)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// text answers with first, and with more below it.
func text(w http.ResponseWriter, status int, first string, more ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprint(w, first) // no newline: flannel writes none
	for _, l := range more {
		// A reason may hold a joined error; it stays one line.
		fmt.Fprint(w, "\n", strings.ReplaceAll(l, "\n", "; "))
	}
}

// These bound what a client may take. A probe or a scrape needs a fraction of it.
const (
	maxHeader = 4 << 10          // bytes; net/http adds 4 KiB to it
	askTime   = 5 * time.Second  // to read a request, and to write an answer
	pageTime  = 15 * time.Second // to write the metrics, which may be megabytes
)

// Serve answers on l until ctx ends, and closes l. However many clients come and whatever they send,
// memory and time are bounded, and a new connection gets its turn. A connection has one answer: with more, whoever asks
// and does not read would keep his place.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := connOf(r.Context()); c != nil {
				c.work(1)
				defer c.work(-1)
			}
			h.ServeHTTP(w, r)
		}),
		ConnContext:    withConn,
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: askTime, ReadTimeout: askTime, WriteTimeout: askTime,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a line for whatever a client does wrong
	}
	s.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(&limited{Listener: l}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health server: %w", err)
	}
	return nil
}

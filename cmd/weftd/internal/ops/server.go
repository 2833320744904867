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

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/verdict"
)

// Listen opens the health server's port. A port that is taken is an error that
// says which flag chooses another.
func Listen(addr netip.Addr, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr.String(), strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("health server: another process has port %d on %s (see ss -ltnp): "+
			"choose another with --healthz-port, or 0 for none", port, addr)
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

// Pages is what the pages are made from.
type Pages struct {
	// Snapshot is called concurrently.
	Snapshot func(control.Parts) *control.Snapshot
	// PerPeer and PerPod say that there are metrics of each peer, and of each pod.
	PerPeer, PerPod bool
}

// Handler serves health, readiness and the metrics. The answers are flannel's. If the node is not ready, the
// reasons follow, each on a line of its own; if it is ready, the notes do.
func Handler(pages Pages) http.Handler {
	metrics := promhttp.HandlerFor(registry(pages), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	// A ServeMux would answer a path such as //x with a redirect that repeats the path, so that the client
	// decides how long the answer is.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.ContentLength != 0: // no page has a body
			text(w, http.StatusRequestEntityTooLarge, "send a request without a body")
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			text(w, http.StatusMethodNotAllowed, "use GET")
		case r.URL.Path == "/healthz":
			text(w, http.StatusOK, running)
		case r.URL.Path == "/readyz":
			s := pages.Snapshot(0)
			if why := verdict.Reasons(s); len(why) > 0 {
				text(w, http.StatusServiceUnavailable, notReady, control.Texts(why)...)
				return
			}
			text(w, http.StatusOK, ready, control.Texts(verdict.Notes(s))...)
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
		if r.URL.Path == "/metrics" && !fromHere(r) {
			text(w, http.StatusForbidden, why)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// fromHere reports whether the client is on this host.
func fromHere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return err == nil && (from.Addr().Unmap().IsLoopback() ||
		ok && from.Addr().Unmap() == to.AddrPort().Addr().Unmap())
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
	maxConns   = 64
	maxScrapes = 8                // pages of metrics at a time, each of megabytes with thousands of peers
	maxHeader  = 4 << 10          // bytes; net/http adds 4 KiB to it
	askTime    = 5 * time.Second  // to read a request
	pageTime   = 10 * time.Second // to write an answer; Prometheus gives up after the same time
)

// Serve answers on l until ctx ends, and closes l. Memory and time are bounded, and a new connection gets its
// turn: of many connections without a request the oldest are closed. A connection has one answer, since with
// more a client that asks and does not read would keep its place.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ConnState: control.BoundSilent(),
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: askTime, ReadTimeout: askTime, WriteTimeout: pageTime,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // a line for every mistake of a client
	}
	s.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(netutil.LimitListener(l, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health server: %w", err)
	}
	return nil
}

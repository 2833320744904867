package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

// flannel's answers, to the byte: scripts and probes compare them.
const (
	running  = "flanneld is running"
	ready    = "flanneld is ready"
	notReady = "flanneld is not ready yet"
)

// Handler serves health, readiness and what reg collects. The answers are flannel's;
// below the one for a node that is not ready stands each reason on a line of its own. reasons
// says why the node is not ready; it is called concurrently.
func Handler(reasons func() []string, reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, running) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := reasons(); len(why) > 0 {
			text(w, http.StatusServiceUnavailable, notReady, why...)
			return
		}
		text(w, http.StatusOK, ready)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	return mux
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

// Serve answers on l until ctx ends, and closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health server: %w", err)
	}
	return nil
}

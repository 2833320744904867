package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"weft/cmd/internal/rights"
	"weft/cmd/internal/socket"
)

// Server answers requests by services, whose methods are called concurrently. A client of one that is nil is
// told that weftd does not know the request.
type Server struct {
	Pages    Pages
	Leases   LeaseService
	Pods     PodService
	Probes   ProbeService
	Captures Capturer
	Settings Reloader
	Keys     KeyService
	Upgrades Upgrader
}

// Pages describe the node.
type Pages interface {
	Status() Status
	Peers() Peers
}

// LeaseService reads and deletes records.
type LeaseService interface {
	Leases(ctx context.Context) (Leases, error)
	// Release deletes a record. If it does not, its error wraps ErrRefused or ErrNotFound, or
	// is another one if the store failed.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)
}

// Capturer shows packets.
type Capturer interface {
	// Capture writes packets until ctx ends, the request is fulfilled or w fails. An error before the first
	// Write is one as of Release.
	Capture(ctx context.Context, r CaptureRequest, w CaptureWriter) error
}

// ProbeService asks peers through the overlay. Its errors are as those of Release.
type ProbeService interface {
	// Ask asks a peer whether its weftd answers, and waits for that.
	Ask(ctx context.Context, r AskRequest) (Asked, error)
	// Matrix asks all peers what they know of theirs, and waits for that, some seconds at the most.
	Matrix(ctx context.Context) (Matrix, error)
}

// Reloader reads settings again.
type Reloader interface {
	// Reload changes what can be changed without a restart. Its error is as that of Release; a setting that
	// cannot be used is none, but stands in the answer.
	Reload(ctx context.Context) (Reloaded, error)
}

// KeyService is about encryption. Its errors are as those of Release.
type KeyService interface {
	// RotateKey gives the node a new private key.
	RotateKey(ctx context.Context) (Rotated, error)
}

// requestTimeout bounds one request, for which the daemon may have to ask the store.
const requestTimeout = 10 * time.Second

// idleTime is how long a connection may wait for its next request. Our own clients have one request a
// connection.
const idleTime = 5 * time.Second

// OccupiedError says that somebody else has the socket's path, so that to try again does not help.
type OccupiedError struct{ Reason string }

func (e *OccupiedError) Error() string { return "control socket: " + e.Reason }

// Listen makes the socket's directory (0755) and the socket (0600). A socket on which
// nobody answers is replaced. The error is an *OccupiedError if a daemon answers on it, or
// if the file is no socket.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := rights.ListenPrivately(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// Occupied returns the *OccupiedError that Listen would return now, and nil for all else. It changes nothing.
func Occupied(path string) error {
	_, err := isStale(path)
	if occupied := new(OccupiedError); errors.As(err, &occupied) {
		return occupied
	}
	return nil
}

// isStale reports whether a socket is there on which nobody answers.
func isStale(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("control socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return false, &OccupiedError{path + " exists and is not a socket: remove it or choose another path with " +
			"--control-socket"}
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		defer func() { _ = c.Close() }() // nothing was asked
		return false, &OccupiedError{"another weftd" + ofProcess(c) + " answers on " + path +
			": stop it, take its place with --replace, or give this one its own --control-socket, --cache-dir and " +
			"--subnet-file"}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return false, fmt.Errorf("control socket: %w", err)
	}
	return true, nil
}

// ofProcess names the process at the other end of c, if it is visible here.
func ofProcess(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ""
	}
	cred, err := rights.Peer(u)
	if err != nil || cred.Pid == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", cred.Pid)
}

func removeStale(path string) error {
	if stale, err := isStale(path); err != nil || !stale {
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("control socket: replace the stale one: %w", err)
	}
	return nil
}

// Serve answers on l until ctx ends; it closes l, which removes the socket.
func Serve(ctx context.Context, l net.Listener, services Server) error {
	s := &http.Server{
		Handler:           services.Handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       2 * requestTimeout,
		WriteTimeout:      2 * requestTimeout,
		IdleTimeout:       idleTime,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withCaller,
		ConnState:         BoundSilent(),
		// a line a second while there are no descriptors
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = s.Close()
	})
	err := s.Serve(l)
	if !stop() {
		<-closed
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// Adopt makes a listener of a descriptor that the program before listened on, and takes that over. Closing
// the listener removes the socket.
func Adopt(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = f.Close() }() // the listener has a duplicate
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(true)
	}
	return l, nil
}

// Handler returns the handler of the requests.
func (s Server) Handler() http.Handler {
	mux := http.NewServeMux()
	if n := s.Pages; n != nil {
		mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Status(), nil) })
		mux.HandleFunc("GET /v1/peers", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.Peers(), nil) })
	}
	if n := s.Leases; n != nil {
		mux.HandleFunc("GET /v1/leases", answering(n.Leases))
		mux.HandleFunc("POST /v1/leases/release", changing(n.Release))
	}
	if n := s.Probes; n != nil {
		mux.HandleFunc("POST /v1/matrix", answering(n.Matrix))
		mux.HandleFunc("POST /v1/ask", func(w http.ResponseWriter, r *http.Request) { serveAsk(n, w, r) })
	}
	if n := s.Captures; n != nil {
		mux.HandleFunc("POST /v1/capture", func(w http.ResponseWriter, r *http.Request) { serveCapture(n, w, r) })
	}
	// Who asked for these two may go away: half a reload is nothing to leave behind, and the record has to
	// follow the key.
	if n := s.Keys; n != nil {
		mux.HandleFunc("POST /v1/rotate-key", finishing(n.RotateKey))
	}
	if n := s.Settings; n != nil {
		mux.HandleFunc("POST /v1/reload", finishing(n.Reload))
	}
	if s.Pods != nil {
		servePods(mux, s.Pods)
	}
	if s.Upgrades != nil {
		serveUpgrade(mux, s.Upgrades)
	}
	return mux
}

// answering answers with what do returns within requestTimeout.
func answering[A any](do func(context.Context) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		a, err := do(ctx)
		reply(w, a, err)
	}
}

// changing is answering for a request that changes something.
func changing[R, A any](do func(context.Context, R) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req R
		if changeRequest(w, r, &req) {
			answering(func(ctx context.Context) (A, error) { return do(ctx, req) })(w, r)
		}
	}
}

// finishing answers with what do returns, which changes something and needs no request. It goes on without
// the client.
func finishing[A any](do func(context.Context) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if changeRequest(w, r, nil) {
			a, err := do(context.WithoutCancel(r.Context()))
			reply(w, a, err)
		}
	}
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		replyError(w, statusOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away
}

// statusOf is the HTTP status for a service's error.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrRefused):
		return http.StatusConflict
	case errors.Is(err, ErrReplaced):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway
}

func replyError(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(socket.Error{Message: err.Error()})
}

// maxSilent is how many connections may be without a request. Clients of ours ask at once.
const maxSilent = 32

// BoundSilent returns a server's ConnState that closes the oldest connection without a request where there
// are too many. So a client that connects and says nothing makes room for others, and takes no more
// descriptors.
func BoundSilent() func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	var silent []net.Conn // oldest first
	return func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if i := slices.Index(silent, c); i >= 0 {
			silent = slices.Delete(silent, i, i+1)
		}
		if s != http.StateNew && s != http.StateIdle {
			return
		}
		silent = append(silent, c)
		if len(silent) > maxSilent {
			_ = silent[0].Close() // it was read from only
			silent = slices.Delete(silent, 0, 1)
		}
	}
}

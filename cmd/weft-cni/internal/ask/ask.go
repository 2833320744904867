// Package ask asks a running weftd for its status, over its control socket. It has only as
// much of HTTP as that takes: the client in cmd/internal/control links net/http, which would
// more than double the size of a program that is started for every pod.
package ask

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// ErrNotListening says that there is no weftd behind the socket.
var ErrNotListening = errors.New("weftd does not listen")

// DefaultSocket is where weftd listens unless it is told otherwise.
const DefaultSocket = "/run/weft/weftd.sock"

// maxAnswer bounds what is read, in bytes.
const maxAnswer = 4 << 20

// Status is the part of the daemon's status that a pod's start depends on.
type Status struct {
	Version string `json:"version"`
	// Ready is what /readyz answers; NotReady are its reasons.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady"`
	Backend  Backend  `json:"backend"`
}

// Backend says how packets are carried.
type Backend struct {
	// Type is the backend's name in the network configuration.
	Type string `json:"type"`
	// Path is portable, socket or raw where weftd itself carries the packets.
	Path string `json:"path"`
}

// Daemon asks the weftd behind socket. It takes no longer than timeout.
func Daemon(ctx context.Context, socket string, timeout time.Duration) (s Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return Status{}, explain(err, socket)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// HTTP/1.0: the answer is neither chunked nor followed by another.
	if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.0\r\nHost: weftd\r\n\r\n"); err != nil {
		return Status{}, explain(err, socket)
	}
	r := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	line, err := r.ReadString('\n')
	if err != nil {
		return Status{}, explain(err, socket)
	}
	if f := strings.Fields(line); len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") || f[1] != "200" {
		return Status{}, fmt.Errorf("weftd on %s answers %q", socket, strings.TrimSpace(line))
	}
	for strings.TrimSpace(line) != "" {
		if line, err = r.ReadString('\n'); err != nil {
			return Status{}, explain(err, socket)
		}
	}
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return Status{}, fmt.Errorf("answer of weftd on %s: %w", socket, err)
	}
	return s, nil
}

// Listens returns nil if somebody listens on socket, and else what to do about it.
func Listens(ctx context.Context, socket string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return explain(err, socket)
	}
	return conn.Close()
}

// explain turns a connection's error into what to do about it.
func explain(err error, socket string) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: is it running? (systemctl status weftd; in Kubernetes the pods of its DaemonSet)", ErrNotListening, socket)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("weftd on %s does not answer in time: see its log", socket)
	}
	return fmt.Errorf("ask weftd on %s: %w", socket, err)
}

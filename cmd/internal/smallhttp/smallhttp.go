// Package smallhttp asks a running weftd over its control socket. It has only as much of HTTP as that takes:
// the client in cmd/internal/control links net/http, which would more than double the size of a program that
// is started for every pod.
package smallhttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultSocket is where weftd listens unless it is told otherwise.
const DefaultSocket = "/run/weft/weftd.sock"

// MaxAnswer bounds what is read of an answer, in bytes.
const MaxAnswer = 16 << 20

// ErrNotListening says that there is no weftd behind the socket.
var ErrNotListening = errors.New("weftd does not listen")

// Exchange is one connection, for one request and its answer. One goroutine at a time uses it.
type Exchange struct {
	// Conn is the connection, on which descriptors can be sent after an upgrade.
	Conn *net.UnixConn
	// Status is the answer's, and JSON whether it says that it is JSON, as weftd's own answers are.
	Status int
	JSON   bool

	socket string
	line   string // the answer's first
	r      *bufio.Reader
	stop   func()
}

// Dial connects to socket; "" is DefaultSocket. The whole exchange takes no longer than timeout, and ends
// with ctx.
func Dial(ctx context.Context, socket string, timeout time.Duration) (*Exchange, error) {
	x := &Exchange{socket: socket}
	if x.socket == "" {
		x.socket = DefaultSocket
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", x.socket)
	if err != nil {
		cancel()
		return nil, x.Fault(err)
	}
	x.Conn = conn.(*net.UnixConn) // of network unix
	ended := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	x.stop = func() {
		ended()
		cancel()
	}
	x.r = bufio.NewReader(io.LimitReader(conn, MaxAnswer))
	return x, nil
}

// Get decodes into a value what weftd answers to GET path. It takes no longer than timeout.
func Get(ctx context.Context, socket string, timeout time.Duration, path string, into any) error {
	x, err := Dial(ctx, socket, timeout)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := x.Ask("GET "+path, nil, ""); err != nil {
		return err
	}
	if x.Status != 200 {
		return x.Unexpected()
	}
	return x.Decode(into)
}

// Close ends the exchange.
func (x *Exchange) Close() {
	x.stop()
	_ = x.Conn.Close() // nothing was written that a close could lose
}

// Ask sends a request, such as "GET /v1/status", and reads the answer's first line and headers. upgrade is
// the protocol that is asked for; "" for none.
func (x *Exchange) Ask(what string, body []byte, upgrade string) error {
	// the answer is neither chunked nor followed by another
	version, headers := "HTTP/1.0", "Connection: close\r\n"
	if upgrade != "" {
		version, headers = "HTTP/1.1", "Connection: Upgrade\r\nUpgrade: "+upgrade+"\r\n"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\r\nHost: weftd\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n",
		what, version, headers, len(body))
	b.Write(body)
	if _, err := x.Conn.Write(b.Bytes()); err != nil {
		return x.Fault(err)
	}
	line, err := x.r.ReadString('\n')
	if err != nil {
		return x.Fault(err)
	}
	x.line = strings.TrimSpace(line)
	f := strings.Fields(line)
	if len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") {
		return x.Unexpected()
	}
	if x.Status, err = strconv.Atoi(f[1]); err != nil {
		return x.Unexpected()
	}
	for {
		if line, err = x.r.ReadString('\n'); err != nil {
			return x.Fault(err)
		}
		if line = strings.TrimSpace(line); line == "" {
			return nil
		}
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Content-Type") && strings.Contains(value, "json") {
			x.JSON = true
		}
	}
}

// Decode reads a value of JSON from the answer's body, or from what follows an upgrade.
func (x *Exchange) Decode(into any) error {
	if err := json.NewDecoder(x.r).Decode(into); err != nil {
		return x.Fault(err)
	}
	return nil
}

// Unexpected is the error of an answer that is none of weftd's: it has the first line.
func (x *Exchange) Unexpected() error {
	line := x.line
	if len(line) > 64 {
		line = line[:64] + "…"
	}
	return fmt.Errorf("weftd on %s answers %q", x.socket, line)
}

// Fault turns a connection's error into what to do about it.
func (x *Exchange) Fault(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: is it running? (systemctl status weftd; in Kubernetes the pods of its "+
			"DaemonSet; another socket is named with --control-socket, and in a CNI configuration with controlSocket)",
			ErrNotListening, x.socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may be opened only by root, or by the user that weftd runs as", x.socket)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("weftd on %s does not answer in time: see its log", x.socket)
	}
	return fmt.Errorf("ask weftd on %s: %w", x.socket, err)
}

package podport

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

// Errors that say what weftd made of a request.
var (
	// ErrNotListening says that there is no weftd behind the socket.
	ErrNotListening = errors.New("weftd does not listen")
	// ErrNotFound says that there is no such pod, and ErrRefused that weftd will not do it.
	ErrNotFound = errors.New("there is no such pod")
	ErrRefused  = errors.New("refused")
)

// Client asks the weftd behind one control socket. It is safe for concurrent use.
type Client struct {
	// Socket is the path; "" is DefaultSocket.
	Socket string
	// Timeout bounds one request; 0 is 10 s.
	Timeout time.Duration
}

// Attach hands the TUN over, which stays the caller's to close. Beside an error weftd has no port for it. The error wraps ErrRefused
// if weftd said so, and then says what to do.
func (c Client) Attach(ctx context.Context, r Request, tun int) (Pod, error) {
	if err := r.Check(); err != nil {
		return Pod{}, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return Pod{}, err
	}
	x, err := c.dial(ctx)
	if err != nil {
		return Pod{}, err
	}
	defer x.close()
	if err := x.ask("POST /v1/pods/attach", body, "Connection: Upgrade\r\nUpgrade: "+Upgrade+"\r\n"); err != nil {
		return Pod{}, err
	}
	if x.status != 101 {
		return Pod{}, x.refusal()
	}
	if _, _, err := x.conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(tun), nil); err != nil {
		return Pod{}, x.fault(err)
	}
	var a Answer
	if err := json.NewDecoder(x.r).Decode(&a); err != nil {
		return Pod{}, x.fault(err)
	}
	if a.Status != 200 || a.Pod == nil {
		return Pod{}, asError(a.Status, a.Error)
	}
	return *a.Pod, nil
}

// Detach has weftd close a pod's port, and forget the pod. The error wraps ErrNotFound if it knows none.
func (c Client) Detach(ctx context.Context, k Key) (Pod, error) {
	if err := k.Check(); err != nil {
		return Pod{}, err
	}
	body, err := json.Marshal(k)
	if err != nil {
		return Pod{}, err
	}
	var p Pod
	return p, c.do(ctx, "POST /v1/pods/detach", body, &p)
}

// Pods lists the pods that are attached.
func (c Client) Pods(ctx context.Context) (Pods, error) {
	var p Pods
	return p, c.do(ctx, "GET /v1/pods", nil, &p)
}

func (c Client) do(ctx context.Context, what string, body []byte, out any) error {
	x, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer x.close()
	if err := x.ask(what, body, "Connection: close\r\n"); err != nil {
		return err
	}
	if x.status != 200 {
		return x.refusal()
	}
	if err := json.NewDecoder(x.r).Decode(out); err != nil {
		return x.fault(err)
	}
	return nil
}

// exchange is one request and its answer.
type exchange struct {
	conn   *net.UnixConn
	socket string
	r      *bufio.Reader
	status int
	ours   bool // the answer is JSON, as weftd's own are
	close  func()
}

func (c Client) dial(ctx context.Context) (*exchange, error) {
	x := &exchange{socket: c.Socket}
	if x.socket == "" {
		x.socket = DefaultSocket
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", x.socket)
	if err != nil {
		cancel()
		return nil, x.fault(err)
	}
	x.conn = conn.(*net.UnixConn) // of network unix
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	x.close = func() {
		stop()
		cancel()
		_ = conn.Close() // nothing was written that a close could lose
	}
	x.r = bufio.NewReader(io.LimitReader(conn, MaxAnswer))
	return x, nil
}

// ask sends the request and reads the answer's status and headers.
func (x *exchange) ask(what string, body []byte, headers string) error {
	version := " HTTP/1.0\r\n" // the answer is neither chunked nor followed by another
	if strings.Contains(headers, "Upgrade:") {
		version = " HTTP/1.1\r\n"
	}
	var b bytes.Buffer
	b.WriteString(what + version + "Host: weftd\r\nContent-Type: application/json\r\n" + headers)
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
	b.Write(body)
	if _, err := x.conn.Write(b.Bytes()); err != nil {
		return x.fault(err)
	}
	line, err := x.r.ReadString('\n')
	if err != nil {
		return x.fault(err)
	}
	f := strings.Fields(line)
	if len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/1.") {
		return fmt.Errorf("weftd on %s answers %q", x.socket, clip(strings.TrimSpace(line)))
	}
	if x.status, err = strconv.Atoi(f[1]); err != nil {
		return fmt.Errorf("weftd on %s answers %q", x.socket, clip(strings.TrimSpace(line)))
	}
	for {
		if line, err = x.r.ReadString('\n'); err != nil {
			return x.fault(err)
		}
		if line = strings.TrimSpace(line); line == "" {
			return nil
		}
		name, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(name, "Content-Type") && strings.Contains(value, "json") {
			x.ours = true
		}
	}
}

// refusal is the error of an answer that is one.
func (x *exchange) refusal() error {
	var e struct {
		Error string `json:"error"`
	}
	if !x.ours {
		return fmt.Errorf("the weftd on %s is older than the direct attachment of pods: %w", x.socket, ErrRefused)
	}
	if err := json.NewDecoder(x.r).Decode(&e); err != nil || e.Error == "" {
		e.Error = fmt.Sprintf("weftd on %s answers with status %d", x.socket, x.status)
	}
	return asError(x.status, e.Error)
}

// asError is an error of weftd's with its own text.
func asError(status int, text string) error {
	switch status {
	case 404:
		return remote{text, ErrNotFound}
	case 400, 403, 409:
		return remote{text, ErrRefused}
	}
	return remote{text, nil}
}

type remote struct {
	text  string
	cause error
}

func (r remote) Error() string { return r.text }
func (r remote) Unwrap() error { return r.cause }

// fault turns a connection's error into what to do about it.
func (x *exchange) fault(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: is it running? (systemctl status weftd; another socket is named with --control-socket)", ErrNotListening, x.socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may be opened only by root, or by the user that weftd runs as", x.socket)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("weftd on %s does not answer in time: see its log", x.socket)
	}
	return fmt.Errorf("ask weftd on %s: %w", x.socket, err)
}

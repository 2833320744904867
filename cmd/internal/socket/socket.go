// Package socket asks the weftd behind a control socket: JSON over HTTP. Package control says what it can be
// asked.
package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Default is where weftd listens unless it is told otherwise.
const Default = "/run/weft/weftd.sock"

// Errors that say what became of a request. ErrNotFound and ErrRefused are weftd's own answers.
var (
	ErrNoDaemon = errors.New("weftd does not answer")
	ErrNotFound = errors.New("not found")
	ErrRefused  = errors.New("refused")
	// ErrUnknown says that the daemon does not know the request, since it is older.
	ErrUnknown = errors.New("the weftd that runs is older than this command, and does not know what it " +
		"asks for: restart it with a program that is as new (systemctl restart weftd)")
)

const (
	// wholeTimeout bounds an answer that the daemon has in memory. A host whose processors are all taken needs
	// seconds for it; that the daemon is stopped is noticed earlier.
	wholeTimeout = 6 * time.Second
	// othersTimeout bounds an answer for which the daemon has to ask others.
	othersTimeout = 20 * time.Second
)

// Client asks the daemon behind one socket. It is safe for concurrent use.
type Client struct {
	Path string
	// Timeout bounds a request; 0 is for what is usual.
	Timeout time.Duration
}

// Do asks with in as the request's body, unless that is nil, and decodes the answer into out, unless that is
// nil.
func (c Client) Do(ctx context.Context, method, path string, in, out any) error {
	timeout := c.Timeout
	switch {
	case timeout != 0:
	case method == http.MethodPost:
		timeout = othersTimeout
	default:
		timeout = wholeTimeout
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if method == http.MethodPost { // it may take long, so the daemon is first asked whether it answers at all
		if err := c.Do(ctx, http.MethodHead, "/", nil, nil); err != nil {
			return err
		}
	}
	var l listener
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		l.watch(ctx, c.Path, end)
	}()
	defer func() { end(nil); <-watched }()
	resp, err := c.send(ctx, &http.Transport{}, &l, method, path, in, "")
	if why := context.Cause(ctx); err != nil && errors.Is(why, ErrStuck) {
		return why
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case method == http.MethodHead: // whatever it says, it answers
		return nil
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent:
		return refusal(resp)
	case out == nil:
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("weftd's answer to %s: %w", path, err)
	}
	return nil
}

// Stream posts a request whose answer is a stream, or with upgrade another protocol on the connection, which
// is returned too. The caller closes the answer's body.
func (c Client) Stream(ctx context.Context, path string, in any, upgrade string) (*http.Response,
	*net.UnixConn, error) {
	if err := c.Do(ctx, http.MethodHead, "/", nil, nil); err != nil {
		return nil, nil, err
	}
	var l listener
	resp, err := c.send(ctx, &http.Transport{ResponseHeaderTimeout: wholeTimeout}, &l, http.MethodPost, path, in,
		upgrade)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = resp.Body.Close() }()
		return nil, nil, refusal(resp)
	}
	return resp, l.conn, nil
}

// send makes a connection for one request.
func (c Client) send(ctx context.Context, t *http.Transport, l *listener, method, path string, in any,
	upgrade string) (*http.Response, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://weftd"+path, &body)
	if err != nil {
		return nil, fmt.Errorf("ask weftd: %w", err)
	}
	if upgrade != "" {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", upgrade)
	}
	t.DisableKeepAlives = true
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, c.Path) }
	resp, err := (&http.Client{Transport: t}).Do(req)
	switch {
	case err != nil && timedOut(err):
		return nil, l.stuck(c.Path)
	case err != nil:
		return nil, c.explain(err)
	}
	return resp, nil
}

// explain turns a connection error into what to do about it.
func (c Client) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: is it running? (systemctl status weftd; in Kubernetes the pods of its "+
			"DaemonSet; another socket is named with --control-socket, and in a CNI configuration with "+
			"controlSocket)", ErrNoDaemon, c.Path)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may be opened only by root, or by the user that weftd runs as: run this as root",
			c.Path)
	}
	return fmt.Errorf("ask weftd on %s: %w", c.Path, err)
}

// Error is the answer to a request that failed.
type Error struct {
	Message string `json:"error"`
}

func refusal(resp *http.Response) error {
	var e Error
	if resp.StatusCode == http.StatusNotFound && resp.Header.Get("Content-Type") != "application/json" {
		return ErrUnknown
	}
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Message == "" {
		e.Message = resp.Status
	}
	return Remote(resp.StatusCode, e.Message)
}

// Remote is an error with the daemon's own message, which wraps the one that an HTTP status stands for.
func Remote(status int, message string) error {
	switch status {
	case http.StatusNotFound:
		return remote{message, ErrNotFound}
	case http.StatusBadRequest, http.StatusForbidden, http.StatusConflict:
		return remote{message, ErrRefused}
	}
	return remote{message, nil}
}

type remote struct {
	message string
	cause   error
}

func (r remote) Error() string { return r.message }
func (r remote) Unwrap() error { return r.cause }

// Listener returns the process that listens on the socket, whether or not it answers; 0 if there is none, or
// if it is not visible from here.
func (c Client) Listener(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, stuckEvery)
	defer cancel()
	var l listener
	conn, err := l.dial(ctx, c.Path)
	if err != nil {
		return 0
	}
	_ = conn.Close() // nothing was sent
	return int(l.pid.Load())
}

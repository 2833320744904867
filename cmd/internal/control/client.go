package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"
)

// ErrNoDaemon says that nobody answers on the socket: weftd is not running, or
// listens elsewhere.
var ErrNoDaemon = errors.New("weftd does not answer")

// Client asks the daemon behind one socket. It is safe for concurrent use.
type Client struct{ socket string }

// wholeTimeout bounds an answer that the daemon has in memory. A host whose processors are all taken needs
// seconds for it; that the daemon is stopped is noticed earlier.
const wholeTimeout = 6 * time.Second

// NewClient returns a Client, which connects with its first request.
func NewClient(socket string) *Client {
	return &Client{socket: socket}
}

// Status asks for the daemon's state.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Peers asks for the nodes with which the daemon exchanges packets.
func (c *Client) Peers(ctx context.Context) (p Peers, err error) {
	return p, c.do(ctx, http.MethodGet, "/v1/peers", nil, &p)
}

// Leases asks for every record that the daemon read.
func (c *Client) Leases(ctx context.Context) (l Leases, err error) {
	return l, c.do(ctx, http.MethodGet, "/v1/leases", nil, &l)
}

// Release asks the daemon to delete a record. The error wraps ErrNotFound or
// ErrRefused if the daemon said so.
func (c *Client) Release(ctx context.Context, r ReleaseRequest) (d Released, err error) {
	return d, c.do(ctx, http.MethodPost, "/v1/leases/release", r, &d)
}

// request makes a request with in as its body, unless that is nil.
func request(ctx context.Context, method, path string, in any) (*http.Request, error) {
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
	return req, nil
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := request(ctx, method, path, in)
	if err != nil {
		return err
	}
	var l listener
	client := http.Client{Timeout: wholeTimeout, Transport: l.transport(c.socket)}
	if method == http.MethodPost {
		// the daemon has to ask others first: it is asked before whether it answers at all
		if err := c.do(ctx, http.MethodHead, "/", nil, nil); err != nil {
			return err
		}
		client.Timeout = 2 * requestTimeout
		if path == upgradePath {
			client.Timeout = upgradeTime + requestTimeout
		}
	}
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		l.watch(ctx, c.socket, cancel)
	}()
	defer func() { cancel(nil); <-watched }()
	resp, err := client.Do(req)
	if why := context.Cause(ctx); err != nil && errors.Is(why, ErrStuck) {
		return why
	}
	if err != nil && timedOut(err) {
		return l.stuck(c.socket)
	}
	if err != nil {
		return c.explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if method == http.MethodHead { // whatever it says, it answers
		return nil
	}
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("weftd's answer to %s: %w", path, err)
	}
	return nil
}

// explain turns a connection error into what to do about it.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s: is it running? (systemctl status weftd; another socket is named with "+
			"--control-socket)", ErrNoDaemon, c.socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may be opened by root only: run this as root", c.socket)
	}
	return fmt.Errorf("ask weftd on %s: %w", c.socket, err)
}

func refusal(resp *http.Response) error {
	var e Error
	if resp.StatusCode == http.StatusNotFound && resp.Header.Get("Content-Type") != "application/json" {
		return ErrUnknown
	}
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Message == "" {
		e.Message = resp.Status
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return remote{e.Message, ErrNotFound}
	case http.StatusConflict:
		return remote{e.Message, ErrRefused}
	}
	return remote{e.Message, nil}
}

// remote is an error with the daemon's own message and the sentinel that it stands for.
type remote struct {
	message string
	cause   error
}

func (r remote) Error() string { return r.message }
func (r remote) Unwrap() error { return r.cause }

package podport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"weft/cmd/internal/smallhttp"
)

// Errors that say what weftd made of a request.
var (
	// ErrNotFound says that there is no such pod, and ErrRefused that weftd will not do it.
	ErrNotFound = errors.New("there is no such pod")
	ErrRefused  = errors.New("refused")
)

// Client asks the weftd behind one control socket. It is safe for concurrent use.
type Client struct {
	// Socket is the path; "" is smallhttp.DefaultSocket.
	Socket string
	// Timeout bounds one request; 0 is 10 s.
	Timeout time.Duration
}

// Attach hands over the pod's descriptors: the TUN's, and behind it those of the files of Settings
// (podtun.OpenSettings), if there are any. All stay the caller's to close. Beside an error weftd has no port
// for it. The error wraps ErrRefused if weftd said so, and then says what to do.
func (c Client) Attach(ctx context.Context, r Request, fds []int) (Pod, error) {
	p, err := c.attach(ctx, r, fds)
	if errors.Is(err, ErrRefused) && len(fds) > 2 {
		return c.attach(ctx, r, fds[:2]) // an older weftd takes no file of the queue's length
	}
	return p, err
}

func (c Client) attach(ctx context.Context, r Request, fds []int) (Pod, error) {
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
	defer x.Close()
	if err := x.Ask("POST /v1/pods/attach", body, Upgrade); err != nil {
		return Pod{}, err
	}
	if x.Status != 101 {
		return Pod{}, refusal(x)
	}
	if _, _, err := x.Conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(fds...), nil); err != nil {
		return Pod{}, x.Fault(err)
	}
	var a Answer
	if err := x.Decode(&a); err != nil {
		return Pod{}, err
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
	err = c.do(ctx, "POST /v1/pods/detach", body, &p)
	return p, err
}

// Pods lists the pods that are attached.
func (c Client) Pods(ctx context.Context) (Pods, error) {
	var p Pods
	err := c.do(ctx, "GET /v1/pods", nil, &p)
	return p, err
}

func (c Client) do(ctx context.Context, what string, body []byte, out any) error {
	x, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := x.Ask(what, body, ""); err != nil {
		return err
	}
	if x.Status != 200 {
		return refusal(x)
	}
	return x.Decode(out)
}

func (c Client) dial(ctx context.Context) (*smallhttp.Exchange, error) {
	return smallhttp.Dial(ctx, c.Socket, cmp.Or(c.Timeout, 10*time.Second))
}

// refusal is the error of an answer that is one.
func refusal(x *smallhttp.Exchange) error {
	if !x.JSON {
		return fmt.Errorf("%w: a weftd that is older than the direct attachment of pods: %w", x.Unexpected(),
			ErrRefused)
	}
	var e struct {
		Error string `json:"error"`
	}
	if err := x.Decode(&e); err != nil || e.Error == "" {
		return asError(x.Status, x.Unexpected().Error())
	}
	return asError(x.Status, e.Error)
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

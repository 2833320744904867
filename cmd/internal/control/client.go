package control

import (
	"context"
	"net/http"

	"weft/cmd/internal/socket"
)

// Errors of requests. A service returns ErrNotFound and ErrRefused to say which HTTP status fits.
var (
	ErrNoDaemon = socket.ErrNoDaemon
	ErrStuck    = socket.ErrStuck
	ErrUnknown  = socket.ErrUnknown
	ErrNotFound = socket.ErrNotFound
	ErrRefused  = socket.ErrRefused
)

// Client asks the daemon behind one socket. It is safe for concurrent use. Its errors wrap those above.
type Client struct{ socket.Client }

// NewClient returns a Client, which connects with its first request.
func NewClient(path string) *Client { return &Client{socket.Client{Path: path}} }

// Status asks for the daemon's state.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.Do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Peers asks for the nodes with which the daemon exchanges packets.
func (c *Client) Peers(ctx context.Context) (p Peers, err error) {
	return p, c.Do(ctx, http.MethodGet, "/v1/peers", nil, &p)
}

// Leases asks for every record that the daemon read.
func (c *Client) Leases(ctx context.Context) (l Leases, err error) {
	return l, c.Do(ctx, http.MethodGet, "/v1/leases", nil, &l)
}

// Release asks the daemon to delete a record.
func (c *Client) Release(ctx context.Context, r ReleaseRequest) (d Released, err error) {
	return d, c.Do(ctx, http.MethodPost, "/v1/leases/release", r, &d)
}

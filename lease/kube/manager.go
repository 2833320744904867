package kube

import (
	"context"
	"log/slog"

	"weft/lease"
)

// Options is what a manager needs. Required: Node, Config, RawConfig and Local.Attrs.
type Options struct {
	// Node is our identity.
	Node string
	// Config is the network, and RawConfig the text that it was read from. It stays until a restart.
	Config    lease.NetworkConfig
	RawConfig []byte
	// Local is what we say about ourselves at first; see SetLocal.
	Local lease.Local
	// Cache keeps the last good state; nil for none. Cached is what it held, nil if nothing.
	Cache  *lease.Cache
	Cached *lease.Cached
	// Publish gets every new complete Set, from one goroutine at a time. It must not block.
	Publish func(lease.Set)
	// Logger gets one line per change of state; nil drops them.
	Logger *slog.Logger
}

// Manager keeps our Node's annotations and publishes what the other Nodes say. Its methods
// are safe for concurrent use.
type Manager struct{}

// NewManager returns a manager that does nothing yet.
func NewManager(c *Client, o Options) (*Manager, error) { return &Manager{}, nil }

// Run publishes sets and keeps our annotations until ctx ends; then it returns nil.
func (m *Manager) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Status returns the present state; the caller owns it.
func (m *Manager) Status() lease.Status { return lease.Status{State: lease.Acquiring} }

// SetLocal changes what we say about ourselves. It never blocks.
func (m *Manager) SetLocal(l lease.Local) {}

// SetDataPath says whether this node carries packets: broken is "" if it does, else what is
// wrong. It never blocks.
func (m *Manager) SetDataPath(broken string) {}

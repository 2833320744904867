// Package ask asks a running weftd for its status, over its control socket.
package ask

import (
	"context"
	"time"

	"weft/cmd/internal/smallhttp"
)

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
	x, err := smallhttp.Dial(ctx, socket, timeout)
	if err != nil {
		return Status{}, err
	}
	defer x.Close()
	if err := x.Ask("GET /v1/status", nil, ""); err != nil {
		return Status{}, err
	}
	if x.Status != 200 {
		return Status{}, x.Unexpected()
	}
	if err := x.Decode(&s); err != nil {
		return Status{}, err
	}
	return s, nil
}

// Listens returns nil if somebody listens on socket, and else what to do about it.
func Listens(ctx context.Context, socket string, timeout time.Duration) error {
	x, err := smallhttp.Dial(ctx, socket, timeout)
	if err != nil {
		return err
	}
	x.Close()
	return nil
}

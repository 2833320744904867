package main

import (
	"context"
	"time"

	"weft/cmd/internal/smallhttp"
)

// daemonStatus is the part of the daemon's status that a pod's start depends on.
type daemonStatus struct {
	Version string `json:"version"`
	// Ready is what /readyz answers; NotReady are its reasons.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady"`
	Backend  backend  `json:"backend"`
}

// backend says how packets are carried: Type is its name in the network configuration, and Path is portable,
// socket or raw where weftd itself carries them.
type backend struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// askDaemon asks the weftd behind socket. It takes no longer than timeout.
func askDaemon(ctx context.Context, socket string, timeout time.Duration) (s daemonStatus, err error) {
	return s, smallhttp.Get(ctx, socket, timeout, "/v1/status", &s)
}

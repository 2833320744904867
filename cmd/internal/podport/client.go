package podport

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"weft/cmd/internal/rights"
	"weft/cmd/internal/socket"
)

// Client asks the weftd behind one control socket. It is safe for concurrent use. The error of a request
// wraps socket.ErrRefused if weftd will not do it, and then says what to do.
type Client struct {
	// Socket is the path; "" is socket.Default.
	Socket string
	// Timeout bounds one request; 0 is 10 s.
	Timeout time.Duration
}

// Attach hands over the pod's descriptors: the TUN's, and behind it those of the files of Settings
// (podtun.OpenSettings), if there are any. All stay the caller's to close. Beside an error weftd has no port
// for it.
func (c Client) Attach(ctx context.Context, r Request, fds []int) (Pod, error) {
	if err := r.Check(); err != nil {
		return Pod{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	resp, conn, err := c.asks().Stream(ctx, "/v1/pods/attach", r, Upgrade)
	if err != nil {
		return Pod{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var a Answer
	if err = rights.Send(conn, []byte{0}, fds); err == nil {
		err = json.NewDecoder(resp.Body).Decode(&a)
	}
	switch {
	case err != nil:
		return Pod{}, fmt.Errorf("weftd's answer to an attach: %w", err)
	case a.Status != http.StatusOK || a.Pod == nil:
		return Pod{}, socket.Remote(a.Status, a.Error)
	}
	return *a.Pod, nil
}

// Detach has weftd close a pod's port, and forget the pod. The error wraps socket.ErrNotFound if it knows
// none.
func (c Client) Detach(ctx context.Context, k Key) (p Pod, err error) {
	if err := k.Check(); err != nil {
		return Pod{}, err
	}
	return p, c.asks().Do(ctx, http.MethodPost, "/v1/pods/detach", k, &p)
}

// Pods lists the pods that are attached.
func (c Client) Pods(ctx context.Context) (p Pods, err error) {
	return p, c.asks().Do(ctx, http.MethodGet, "/v1/pods", nil, &p)
}

func (c Client) timeout() time.Duration { return cmp.Or(c.Timeout, 10*time.Second) }

func (c Client) asks() socket.Client {
	return socket.Client{Path: cmp.Or(c.Socket, socket.Default), Timeout: c.timeout()}
}

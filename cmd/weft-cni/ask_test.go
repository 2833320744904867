package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
)

// pagesNode is a daemon that has nothing but a status.
type pagesNode struct{ control.Pages }

func (pagesNode) Status() control.Status {
	return control.Status{
		Version: "v1", NotReady: []string{"no network config", strings.Repeat("long ", 100000)},
		Backend: control.Backend{Type: "udp", Path: "raw"},
	}
}

func TestDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.Serve(ctx, l, control.Server{Pages: pagesNode{}}) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	s, err := askDaemon(ctx, path, 30*time.Second)
	if err != nil || s.Ready || s.Version != "v1" || len(s.NotReady) != 2 ||
		s.NotReady[0] != "no network config" || s.Backend != (backend{"udp", "raw"}) {
		t.Errorf("got %.300v, %v", s, err)
	}
}

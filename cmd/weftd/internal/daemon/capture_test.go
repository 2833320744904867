package daemon

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/encap"
	"weft/tunnel"
)

// A data plane that was replaced, since the network configuration is another one, carries no packets any more: whoever
// captures there is not to wait for some.
func TestACaptureEndsWithItsDataPlane(t *testing.T) {
	e, err := tunnel.New(tunnel.Config{Port: 8285, Format: encap.FormatIP, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Capture(tunnel.CaptureOptions{Inner: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ended); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := pump(ctx, planeCapture{Capture: c}, control.CaptureRequest{Inner: true}, new(bytes.Buffer)); !errors.Is(err, errPlaneEnded) {
		t.Errorf("got %v", err)
	}
}

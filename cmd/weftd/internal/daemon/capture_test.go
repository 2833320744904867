package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
)

// A data plane that was replaced, since the network configuration is another one, carries no packets any
// more: whoever captures there is not to wait for some.
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
	ctx, stop := context.WithTimeout(t.Context(), await.Patience)
	defer stop()
	if err := pump(ctx, planeCapture{Capture: c}, control.CaptureRequest{Inner: true}, nowhere{}); !errors.Is(err, errPlaneEnded) {
		t.Errorf("got %v", err)
	}
}

// nothing is a source without packets.
type nothing struct{}

func (nothing) next() (control.CapturedPacket, bool, error) {
	return control.CapturedPacket{}, false, nil
}
func (nothing) missed() uint64 { return 0 }
func (nothing) close()         {}

// nowhere takes packets.
type nowhere struct{}

func (nowhere) Write(control.Captured) error { return nil }
func (nowhere) Flush()                       {}

// A capture that is over says nothing, and one that weftd's end cuts short says so.
func TestACaptureThatIsCutShortSaysSo(t *testing.T) {
	over, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if err := pump(over, nothing{}, control.CaptureRequest{Inner: true}, nowhere{}); err != nil {
		t.Errorf("after the time that was asked for: %v", err)
	}
	ends, cut := context.WithCancel(t.Context())
	cut()
	if err := pump(ends, nothing{}, control.CaptureRequest{Inner: true}, nowhere{}); !errors.Is(err, errStops) {
		t.Errorf("cut short: %v", err)
	}
}

package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/test/await"
)

type pipe struct {
	io.Reader
	io.WriteCloser
}

// farEnd runs a far end until the test ends, and returns the near end's side of it.
func farEnd(t *testing.T) (c io.ReadWriteCloser, ended <-chan error) {
	t.Helper()
	in, theirOut := io.Pipe()
	theirIn, out := io.Pipe()
	done := make(chan error, 1)
	// waited for in the clean-up, unless the test does
	go func() { done <- Serve(t.Context(), theirIn, theirOut) }()
	t.Cleanup(func() { _ = out.Close() })
	return pipe{in, out}, done
}

// short measures everything as briefly as works on a machine that other tests keep busy.
func short() plan.Config {
	c := plan.Quick()
	c.TCP, c.WarmUp, c.Trial, c.Ping, c.Frames, c.Loss = 100*time.Millisecond, 20*time.Millisecond,
		60*time.Millisecond, 300*time.Millisecond, []int{64, 1518}, 0.5
	return c
}

// TestMeasure makes a whole session over loopback, in both families and directions.
func TestMeasure(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		c, ended := farEnd(t)
		d, err := Run(t.Context(), Plan{Config: short(), To: netip.MustParseAddrPort(addr), Reverse: true}, c,
			plan.Out{})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Rungs) != 2 || len(d.Measures) < 6 || d.Far != nil {
			t.Errorf("%d rungs, %d measures, other machine %v", len(d.Rungs), len(d.Measures), d.Far)
		}
		for _, m := range d.Measures {
			for _, r := range m.Results {
				if len(m.Results) != 2 || r.Figures[0].Median <= 0 {
					t.Errorf("%s %s %s: %d results, %+v", addr, m.Key, r.Rung, len(m.Results), r.Figures[0])
				}
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestCancelled: a measurement that is cancelled ends at once, at both ends.
func TestCancelled(t *testing.T) {
	c, ended := farEnd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	p := short()
	p.TCP = time.Hour
	if _, err := Run(ctx, Plan{Config: p, To: netip.MustParseAddrPort("127.0.0.1:0")}, c, plan.Out{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStrangers: a connection without the tag is closed, and the session goes on.
func TestStrangers(t *testing.T) {
	c, _ := farEnd(t)
	k, err := Dial(t.Context(), c, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for _, say := range []string{"GET / HTTP/1.0\r\n\r\n" + strings.Repeat("x", introduction), ""} {
		s, err := net.Dial("tcp", k.at.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(s, say); err != nil {
			t.Fatal(err)
		}
		_ = s.SetReadDeadline(time.Now().Add(await.Patience))
		var timeout net.Error
		if n, err := s.Read(make([]byte, 1)); n != 0 || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%q: %d bytes, %v", say, n, err)
		}
		_ = s.Close()
	}
	if _, err := (&ends{k, false}).TCP(t.Context(), 1, time.Millisecond, 50*time.Millisecond); err != nil {
		t.Error(err)
	}
}

// TestRefusals: each end says what it does not like of the other's words.
func TestRefusals(t *testing.T) {
	c, _ := farEnd(t)
	if _, err := Dial(t.Context(), c, netip.MustParseAddrPort("192.0.2.1:0")); err == nil ||
		!strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("an address that the far end has not: %v", err)
	}
	c, _ = farEnd(t)
	k, err := Dial(t.Context(), c, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if _, err := call[Welcome](t.Context(), k, "Hello", Hello{Version: Version + 1}, 0); err == nil ||
		!strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
	if _, err := call[int64](t.Context(), k, "Count", None{}, 0); err == nil {
		t.Error("a count without a receiver")
	}
	if _, err := call[None](t.Context(), k, "Receive", Receive{load.Traffic{}, load.Drain}, 0); err == nil {
		t.Error("no traffic was described")
	}
	if err := k.alive(); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

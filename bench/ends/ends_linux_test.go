package ends

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/netns"
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

// pods returns two pods of a lab without a daemon. It needs root.
func pods(t *testing.T) (from, to probe.Endpoint) {
	t.Helper()
	netns.Need(t)
	l, err := lab.Up(t.Context(), lab.Spec{Driver: lab.KernelHostGW, PodsPerNode: 1, Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	a, b := l.Pods()[0], l.Pods()[1]
	if err := lab.Reach(await.Context(t, await.Patience), a.Endpoint(4), b.Addr(4)); err != nil {
		t.Fatal(err)
	}
	return a.Endpoint(4), b.Endpoint(4)
}

// TestLocal measures between two namespaces. How fast that is does not matter here.
func TestLocal(t *testing.T) {
	from, to := pods(t)
	k, err := Local(t.Context(), from, to, func() []int { return []int{os.Getpid()} })
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []plan.Ends{k.There(), k.Back()} {
		for _, streams := range []int{1, 4} {
			last := 250 * time.Millisecond
			await.OK(t, fmt.Sprintf("TCP, %d streams", streams), func() error {
				r, err := e.TCP(t.Context(), streams, time.Millisecond, last)
				if err == nil && (r.Bytes <= 0 || r.Elapsed < last*9/10) {
					t.Errorf("TCP, %d streams: %+v", streams, r)
				}
				last = min(4*last, 4*time.Second) // a machine that is busy may give neither end its turn for so long
				return err
			})
		}
		rtts, err := e.PingPong(t.Context(), 64, 400*time.Millisecond, plan.Placement{From: load.AnyCPU, To: 0})
		if err != nil || len(rtts) == 0 || probe.Quantile(rtts, 0.5) <= 0 {
			t.Errorf("ping-pong: %v", err)
		}
		f, err := e.Open(t.Context(), load.Single(load.Segment, 64))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if r, err := f.Trial(t.Context(), 5000, 50*time.Millisecond); err != nil || r.Sent == 0 || r.Sent > 250 ||
				r.Received > r.Sent {
				t.Errorf("%v, %v", r, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	anywhere := plan.Placement{From: load.AnyCPU, To: load.AnyCPU}
	if _, err := k.There().PingPong(ctx, 64, time.Hour, anywhere); err == nil {
		t.Error("ping-pong was cancelled, and says nothing")
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	from.Addr = to.Addr // not an address of from
	if k, err = Local(t.Context(), from, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.There().TCP(t.Context(), 1, time.Millisecond, time.Millisecond); err == nil {
		t.Error("TCP from another's address")
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// TestCancelled: a measurement that is cancelled ends at once, at both ends.
func TestCancelled(t *testing.T) {
	c, ended := farEnd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	p := short()
	p.TCP = time.Hour
	_, err := Run(ctx, Plan{Config: p, To: netip.MustParseAddrPort("127.0.0.1:0")}, c, plan.Out{})
	if !errors.Is(err, context.DeadlineExceeded) {
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
	if _, err := k.There().TCP(t.Context(), 1, time.Millisecond, 50*time.Millisecond); err != nil {
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
	if err := k.alive(); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

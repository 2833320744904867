package load

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/netns"
)

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

// TestGenerators checks that the generators count rightly. How fast they are does not matter here.
func TestGenerators(t *testing.T) {
	from, to := pods(t)
	for _, streams := range []int{1, 4} {
		last := 250 * time.Millisecond
		await.OK(t, fmt.Sprintf("TCP, %d streams", streams), func() error {
			r, err := TCP(t.Context(), TCPPlan{From: from, To: to, Streams: streams, WarmUp: time.Millisecond,
				Duration: last})
			if err == nil && (r.Bytes <= 0 || r.Elapsed < last) {
				t.Errorf("TCP, %d streams: %+v", streams, r)
			}
			last = min(4*last, 4*time.Second) // a machine that is busy may give neither end its turn for so long
			return err
		})
	}
	rtts, err := PingPong(t.Context(), PingPongPlan{From: from, To: to, Duration: 400 * time.Millisecond,
		FromCPU: AnyCPU, ToCPU: 0})
	if err != nil || len(rtts) == 0 || rtts.Quantile(0.5) <= 0 {
		t.Errorf("ping-pong: %v", err)
	}
	mixed := Traffic{Mode: SendTo, Payloads: []int{18, 548, 1372}, Weights: []int{7, 4, 1}, Flows: 1000}
	for _, traffic := range []Traffic{Single(SendTo, 64), Single(SendMMsg, 64), Single(Segment, 64), mixed} {
		for _, receiver := range []ReceiveMode{Drain, Wait} {
			f, err := NewFlow(from, to, traffic, receiver)
			if err != nil {
				t.Fatal(err)
			}
			for _, rate := range []float64{0, 5000} {
				r, err := f.Trial(t.Context(), rate, 50*time.Millisecond)
				arrived := f.receiver.Count()
				if err != nil || r.Sent == 0 || r.Received > r.Sent || arrived > r.Sent {
					t.Errorf("%+v to %v at %.0f/s: %v, %d arrived in the end, %v", traffic, receiver, rate, r, arrived, err)
				}
				if rate > 0 {
					if r.Sent > 250 {
						t.Errorf("%+v to %v at %.0f/s: %d sent, want at most 250", traffic, receiver, rate, r.Sent)
					}
					await.OK(t, fmt.Sprintf("all of %+v to %v at %.0f/s", traffic, receiver, rate), func() error {
						// the receiver may get its turn late
						if arrived = f.receiver.Count(); arrived != r.Sent {
							return fmt.Errorf("%d sent, %d arrived", r.Sent, arrived)
						}
						return nil
					})
				}
			}
			f.receiver.Expect(f.tag + 1) // datagrams of one trial that are late do not count for the next
			if _, err := f.sender.Send(t.Context(), f.tag, 1000, 10*time.Millisecond); err != nil ||
				f.receiver.Count() != 0 {
				t.Errorf("%+v: %d datagrams with another's tag, %v", traffic, f.receiver.Count(), err)
			}
			if err := f.Close(); err != nil {
				t.Errorf("%+v: %v", traffic, err)
			}
		}
	}
}

// TestGeneratorsFail: a path that carries nothing is an error, and a cancelled
// context ends a measurement at once.
func TestGeneratorsFail(t *testing.T) {
	from, to := pods(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := TCP(ctx, TCPPlan{From: from, To: to, Duration: time.Hour}); err == nil {
		t.Error("TCP was cancelled, and says nothing")
	}
	if _, err := PingPong(ctx, PingPongPlan{From: from, To: to, Duration: time.Hour}); err == nil {
		t.Error("ping-pong was cancelled, and says nothing")
	}
	from.Addr = to.Addr // not an address of from
	if _, err := TCP(t.Context(), TCPPlan{From: from, To: to}); err == nil {
		t.Error("TCP from another's address")
	}
}

func TestReadCPU(t *testing.T) {
	before, err := ReadCPU(unix.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; {
		now, err := ReadCPU(unix.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if d := now.Sub(before); d.Processes >= 2*tick && d.Machine >= 2*tick { // both are counted, each by itself
			return
		}
		if time.Now().After(end) {
			t.Fatal("no processor time was counted in 10 s")
		}
	}
}

package load

import (
	"errors"
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

// TestDatagrams checks that senders and receivers count rightly. How fast they are does not matter here.
func TestDatagrams(t *testing.T) {
	from, to := pods(t)
	mixed := Traffic{Mode: SendTo, Payloads: []int{18, 548, 1372}, Weights: []int{7, 4, 1}, Flows: 1000}
	for _, traffic := range []Traffic{Single(SendTo, 64), Single(Segment, 64), mixed} {
		receiver, err := NewReceiver(to, 0, traffic.Largest())
		if err != nil {
			t.Fatal(err)
		}
		sender, err := NewSender(from, receiver.Addr(), traffic)
		if err != nil {
			t.Fatal(err)
		}
		for tag, rate := range []float64{0, 5000} {
			receiver.Expect(uint64(tag))
			r, err := sender.Send(t.Context(), uint64(tag), rate, 50*time.Millisecond)
			if err == nil {
				err = receiver.Quiet(t.Context())
			}
			arrived := receiver.Count()
			if err != nil || r.Sent == 0 || arrived > r.Sent {
				t.Errorf("%+v at %.0f/s: %v, %d arrived, %v", traffic, rate, r, arrived, err)
			}
			if rate > 0 {
				if r.Sent > 250 {
					t.Errorf("%+v at %.0f/s: %d sent, want at most 250", traffic, rate, r.Sent)
				}
				await.OK(t, fmt.Sprintf("all of %+v at %.0f/s", traffic, rate), func() error {
					// the receiver may get its turn late
					if arrived = receiver.Count(); arrived != r.Sent {
						return fmt.Errorf("%d sent, %d arrived", r.Sent, arrived)
					}
					return nil
				})
			}
		}
		receiver.Expect(2) // datagrams of one trial that are late do not count for the next
		if _, err := sender.Send(t.Context(), 1, 1000, 10*time.Millisecond); err != nil || receiver.Count() != 0 {
			t.Errorf("%+v: %d datagrams with another's tag, %v", traffic, receiver.Count(), err)
		}
		if err := errors.Join(sender.Close(), receiver.Close()); err != nil {
			t.Errorf("%+v: %v", traffic, err)
		}
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
		const some = 20 * time.Millisecond // both are counted, each by itself
		if d := now.Sub(before); d.Processes >= some && d.Machine >= some {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no processor time was counted in 10 s")
		}
	}
}

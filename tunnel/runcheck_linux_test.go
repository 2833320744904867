package tunnel_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
)

// hastened is a clock that runs thirty times too fast, so that a round takes 33 ms.
func hastened() func() int64 {
	began := time.Now()
	return func() int64 { return began.UnixNano() + 30*int64(time.Since(began)) }
}

// hears has the first host hear something from the second one, again and again, until done.
func (o *overlay) hears(t *testing.T, what string, done func() error) {
	t.Helper()
	var c net.Conn
	o.hosts[1].Do(t, func() (err error) { c, err = net.Dial("udp4", "10.1.1.0:9"); return err })
	defer c.Close()
	await.OK(t, what, func() error {
		_, _ = c.Write([]byte("here")) // the errors are about the one before
		return done()
	})
}

// TestRunsAreAskedOfWhoAnswers: a peer of flannel or of an older weft, whose record does not name runs, gets
// no question. Another gets one round, and answers each datagram by a shorter one.
func TestRunsAreAskedOfWhoAnswers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		recv      port.Recv
		questions int
	}{{"says nothing", 0, 0}, {"an older weft's", port.Supported &^ port.RecvRuns, 0},
		{"answers", port.Supported, 8}} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := path{recv: tt.recv, clock: hastened()}, path{recv: tt.recv &^ port.RecvRuns}
			o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{a, b})
			c, err := o.engines[0].Capture(tunnel.CaptureOptions{Outer: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			heard := time.Now()
			questions, answers := 0, 0
			o.hears(t, "rounds", func() error {
				for p, more := c.Next(); more; p, more = c.Next() {
					b := p.Data[20+8:]
					if q, err := encap.ParseProbe(b); err == nil && q.Whole {
						questions++
					} else if err == nil && q.Answer && len(b) == encap.ProbeLen {
						answers++
					}
				}
				if time.Since(heard) < 200*time.Millisecond || answers < tt.questions {
					return fmt.Errorf("%d questions and %d answers", questions, answers)
				}
				return nil
			})
			if questions != tt.questions || answers != tt.questions {
				t.Errorf("%d questions and %d answers, want %d", questions, answers, tt.questions)
			}
		})
	}
}

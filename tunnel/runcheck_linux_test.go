package tunnel_test

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
)

// breakRuns has the device of a host lose what it is to cut, without a word: what it does not have to cut
// passes.
func breakRuns(t *testing.T, h *host) {
	t.Helper()
	h.Do(t, func() error {
		nft := exec.Command("nft", "-f", "-") // Debian: nftables
		nft.Stdin = strings.NewReader(`table netdev broken {
			chain out { type filter hook egress device "eth0" priority 0
				meta length > 1514 drop
			}
		}`)
		if out, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// hastened is a clock that runs thirty times too fast, so that a round takes 33 ms.
func hastened() func() int64 {
	began := time.Now()
	return func() int64 { return began.UnixNano() + 30*int64(time.Since(began)) }
}

// state is where an offload of the first engine stands.
func (o *overlay) state(what port.Offload) port.OffloadState {
	for _, l := range o.engines[0].Stats().Offloads {
		if l.Offload == what {
			return l.State
		}
	}
	return 0
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

// TestBrokenRunsAreFound has a device lose runs and pass single datagrams, on either path. The engine gives
// udp-gso up, traffic goes on, and the engine uses it again after a doubt.
func TestBrokenRunsAreFound(t *testing.T) {
	raw := path{raw: true, off: port.OffloadSet(0).With(port.OffloadTunnel)}
	for name, p := range map[string]path{"socket": {}, "raw": raw} {
		t.Run(name, func(t *testing.T) {
			said := &diary{}
			p.recv, p.clock = port.RecvProbe|port.RecvRuns, hastened()
			a := p
			a.log = slog.New(slog.NewTextHandler(said, nil))
			o := newOverlay(t, "192.0.2.1", "192.0.2.2", 1500, [2]path{a, p})
			o.carries(t, "10.1.2.0")
			if s := o.state(port.OffloadGSO); s != port.OffloadOn {
				t.Fatalf("udp-gso is %v while nothing is wrong", s)
			}
			breakRuns(t, o.hosts[0])
			o.engines[0].DoubtRuns() // it would be asked in an hour
			o.hears(t, "broken runs to be found", func() error {
				if s := o.state(port.OffloadGSO); s != port.OffloadBroken {
					return fmt.Errorf("udp-gso is %v", s)
				}
				return nil
			})
			if !said.has("offload=udp-gso") || !said.has("peer=peer") {
				t.Errorf("the log does not say so: %s", said.b.String())
			}
			o.carries(t, "10.1.2.0")
			if s := o.engines[1].Stats().Ingress; s.Drops[port.DropMalformed] != 0 {
				t.Errorf("probes count as packets: %+v", s)
			}
			o.hosts[0].Do(t, func() error { return exec.Command("nft", "delete", "table", "netdev", "broken").Run() })
			if o.engines[0].DoubtRuns(); o.state(port.OffloadGSO) != port.OffloadOn {
				t.Errorf("udp-gso is %v on another device", o.state(port.OffloadGSO))
			}
			o.carries(t, "10.1.2.0")
		})
	}
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

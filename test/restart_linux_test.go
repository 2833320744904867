package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/netns"
	"weft/test/lab/probe"
)

// mayLose is how many of 5,000 packets at 1,000 a second a restart may cost, besides those that are sent while
// the kernel ends the old process: for its packet sockets and its table of nftables it waits for grace periods of
// RCU, 10 to 40 ms on one and the same machine. More than mayEnd of these packets are not taken for the kernel's.
// On a machine that does something else as well both are what yardstick measures there, if that is more.
const (
	mayLose = 50
	mayEnd  = 30
)

// inStream is how many packets a stream has.
const inStream = 5000

// tries is how many restarts the test makes until one costs so little.
const tries = 5

// A daemon that is stopped or killed and started again takes up its device and its last known
// peers before it asks the store, so a restart costs little, and no more while there is no store.
// What is counted is mostly the kernel's time to end the old process, in which it waits for grace periods
// of RCU, and the new one's to begin: a machine that does something else as well takes longer for both.
func TestRestartLosesLittle(t *testing.T) {
	first(t)
	for _, c := range []struct {
		name    string
		storeUp bool
		after   int // packets
	}{{"store up", true, 1000}, {"store down", false, 3000}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // with the other one alone, whose daemon restarts at another time
			l := up(t, lab.Spec{})
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
			reach(t, await.Patience, a, b, 4)
			if !c.storeUp {
				if err := l.Store.Daemon.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
				t.Run(unix.SignalName(sig), func(t *testing.T) {
					var all []string
					for range tries {
						lost, most := restart(t, a, b, sig, c.after)
						if lost <= most {
							return
						}
						all = append(all, fmt.Sprintf("%d lost, want at most %d", lost, most))
					}
					t.Errorf("of %d packets, after the old process was gone: %s", inStream, strings.Join(all, "; "))
				})
			}
			if !c.storeUp {
				if err := l.Store.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Node.WaitReady(t.Context()); err != nil {
				t.Error(lab.Explain(err))
			}
		})
	}
}

// yardstick is how many milliseconds this machine takes now for what a restart does too: a program of that size starts, at that
// priority, and the kernel makes and removes a device and a table. An idle machine takes less than mayLose.
func yardstick(t *testing.T) int {
	t.Helper()
	ns, err := netns.New("yardstick")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	began := time.Now()
	sh(t, &lab.Host{Name: "yardstick", NS: ns}, fmt.Sprintf(`renice -n %d $$ >/dev/null
		ip tuntap add yard0 mode tap; ip link set yard0 up
		nft 'table netdev yard { chain c { type filter hook ingress device yard0 priority 0; }; }'; nft delete table netdev yard
		ip link del yard0; %s --version >/dev/null`, ahead, command(t, "weftd")))
	return int(time.Since(began) / time.Millisecond)
}

// restart restarts the daemon of b's node in the middle of two streams, one in each direction, and
// returns how many packets the worse one lost after the old process was gone, and how many it may.
func restart(t *testing.T, a, b *lab.Pod, sig unix.Signal, after int) (lost, most int) {
	t.Helper()
	yard := yardstick(t)
	began := time.Now()
	there, back := paced(t, a, b, probe.PacedPlan{Count: inStream}), paced(t, b, a, probe.PacedPlan{Count: inStream})
	underWay(t, there, after)
	start := time.Now()
	d := b.Node.Daemon
	if err := d.Signal(sig); err != nil {
		t.Fatal(err)
	}
	<-d.Exited()
	stopped := time.Since(start)
	if err := d.ExitError(); sig == unix.SIGTERM && err != nil {
		t.Errorf("asked to stop: %v", err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("gone after %s, started after %s", stopped, time.Since(start))
	for _, s := range []struct {
		name   string
		stream *probe.Paced
	}{{"to the node that restarts", there}, {"from it", back}} {
		r := s.stream.Wait()
		t.Logf("%s: %s, outages %v", s.name, r, r.Outages)
		if r.Sent != inStream || r.Duplicates > 0 || r.Reordered > 0 {
			t.Errorf("%s: %s, want none twice, none out of order", s.name, r)
		}
		lost = max(lost, r.Lost)
	}
	yard = max(yard, yardstick(t))
	lost -= min(int(stopped/time.Millisecond), max(mayEnd, yard)) // a packet is sent each millisecond
	if most = max(mayLose, yard); lost > most {
		t.Logf("the stream began at %s; the end of the log:\n%s", began.UTC().Format(time.RFC3339Nano), d.LogTail(8))
	}
	t.Logf("%d packets lost after the old process was gone; %d ms are this machine's yardstick", lost, yard)
	return lost, most
}

// paced starts a stream between two pods.
func paced(t *testing.T, from, to *lab.Pod, plan probe.PacedPlan) *probe.Paced {
	t.Helper()
	plan.From, plan.To = from.Endpoint(4), to.Endpoint(4)
	s, err := probe.StartPaced(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// underWay waits until a stream has sent so many packets.
func underWay(t *testing.T, s *probe.Paced, packets int) {
	t.Helper()
	await.Within(t, time.Minute, "stream", func() error {
		if sent, _ := s.Progress(); sent < packets {
			return fmt.Errorf("%d packets sent, want %d", sent, packets)
		}
		return nil
	})
}

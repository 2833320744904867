package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"weft/bench/ends"
	"weft/bench/load"
	"weft/bench/plan"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// comparison is one thing that two programs measure.
type comparison struct {
	what, unit   string
	program      string
	theirs, ours func() (float64, error)
	theirl, ourl []float64
	// agreement is the factor by which either median may be larger than the other.
	agreement float64
}

// BenchmarkOverlayGenerators measures one path, the kernel's host-gw set up by hand, with our own
// generators and with iperf3 and sockperf in turns, and fails if the medians disagree.
// If a program is not installed, the benchmark says so and reports only our own figure.
func BenchmarkOverlayGenerators(b *testing.B) {
	l, err := lab.Up(b.Context(), lab.Spec{Driver: lab.KernelHostGW, PodsPerNode: 1, Direct: true})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	from, to := l.Pods()[0], l.Pods()[1]
	k, err := ends.Local(b.Context(), from.Endpoint(4), to.Endpoint(4), func() []int { return nil })
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	all := comparisons(b.Context(), k.There(), from, to)
	const rounds = 3
	for i := range all {
		c := &all[i]
		if _, err := exec.LookPath(c.program); err != nil {
			b.Logf("%s is not installed (apt-get install %[1]s): %s is measured by our own generator alone",
				c.program, c.what)
			c.theirs = nil
		}
	}
	for range rounds {
		for i := range all {
			if err := all[i].turn(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i := range all {
		all[i].conclude(b)
	}
}

func (c *comparison) turn() error {
	v, err := c.ours()
	if err != nil {
		return fmt.Errorf("%s, our own: %w", c.what, err)
	}
	c.ourl = append(c.ourl, v)
	if c.theirs == nil {
		return nil
	}
	if v, err = c.theirs(); err != nil {
		return fmt.Errorf("%s, %s: %w", c.what, c.program, err)
	}
	c.theirl = append(c.theirl, v)
	return nil
}

func (c *comparison) conclude(b *testing.B) {
	slices.Sort(c.ourl)
	ours := c.ourl[len(c.ourl)/2]
	if len(c.theirl) == 0 {
		b.Logf("%s: our own %.1f %s", c.what, ours, c.unit)
		return
	}
	slices.Sort(c.theirl)
	theirs := c.theirl[len(c.theirl)/2]
	b.Logf("%s: our own %.1f (%.1f–%.1f), %s %.1f (%.1f–%.1f) %s: factor %.2f, at most %.1f either way", c.what,
		ours, c.ourl[0], c.ourl[len(c.ourl)-1], c.program, theirs, c.theirl[0], c.theirl[len(c.theirl)-1], c.unit,
		ours/theirs, c.agreement)
	b.ReportMetric(ours/theirs, "own/"+c.program+"-"+c.unit)
	if f := ours / theirs; f > c.agreement || f < 1/c.agreement {
		b.Errorf("%s: our own generator and %s do not agree", c.what, c.program)
	}
}

func comparisons(ctx context.Context, own plan.Ends, from, to *lab.Pod) []comparison {
	return []comparison{{
		what: "TCP, 1 stream", unit: "Gb/s", program: "iperf3", agreement: 1.5,
		ours: func() (float64, error) {
			r, err := own.TCP(ctx, 1, 300*time.Millisecond, time.Second)
			return r.GigabitsPerSecond(), err
		},
		theirs: func() (float64, error) {
			r, err := iperf(ctx, from, to, "-t1.3", "-O0.3")
			return r.End.SumReceived.BitsPerSecond / 1e9, err
		},
	}, {
		what: "64-byte datagrams, as fast as the sender can, delivered", unit: "kpackets/s", program: "iperf3",
		agreement: 2.5, // iperf3 reads the clock and calls select for every datagram
		ours: func() (float64, error) {
			f, err := own.Open(ctx, load.Single(load.SendTo, 64))
			if err != nil {
				return 0, err
			}
			t, err := f.Trial(ctx, 0, time.Second)
			return t.Delivered() / 1000, errors.Join(err, f.Close())
		},
		theirs: func() (float64, error) {
			r, err := iperf(ctx, from, to, "-t1", "-u", "-l64", "-b0")
			s := r.End.Sum
			return (s.Packets - s.LostPackets) / s.Seconds / 1000, err
		},
	}, {
		what: "TCP ping-pong of 64 bytes on CPUs 0 and 1, median round trip", unit: "us", program: "sockperf",
		agreement: 1.5,
		ours: func() (float64, error) {
			rtts, err := own.PingPong(ctx, 64, time.Second, plan.Placement{From: 0, To: 1})
			if err != nil {
				return 0, err
			}
			return float64(probe.Quantile(rtts, 0.5)) / float64(time.Microsecond), nil
		},
		theirs: func() (float64, error) { return sockperf(ctx, from, to) },
	}}
}

// iperfReport has those fields of iperf3's JSON that are looked at.
type iperfReport struct {
	Error string
	End   struct {
		SumReceived struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
		Sum struct {
			Packets     float64
			LostPackets float64 `json:"lost_packets"`
			Seconds     float64
		}
	}
}

// iperf runs iperf3 from one pod to another; its server ends after one client.
func iperf(ctx context.Context, from, to *lab.Pod, args ...string) (r iperfReport, err error) {
	server := exec.Command("iperf3", "-s", "-1")
	if err := to.NS.Start(server); err != nil {
		return r, err
	}
	defer func() { _ = server.Wait() }()
	defer func() { _ = server.Process.Kill() }()
	addr := to.Addr(4).String()
	if err := listening(ctx, to, 5201); err != nil {
		return r, err
	}
	out, err := from.Command(ctx, "iperf3", append([]string{"-J", "-c", addr}, args...)...)
	if jsonErr := json.Unmarshal(out, &r); err == nil {
		err = jsonErr
	}
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return r, err
}

// listening waits until there is a listener at port in the pod. It reads the kernel's tables instead
// of connecting, because iperf3 -1 would take the connection for that of its only client.
func listening(ctx context.Context, pod *lab.Pod, port int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second,
		fmt.Errorf("%s: nobody listens at port %d", pod.Name, port))
	defer cancel()
	// proc_net_tcp(5): the local address and port in hexadecimal, the other's, and state 0A for a listener.
	listener := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, port))
	for ctx.Err() == nil {
		var tables []byte
		err := pod.Do(func() error {
			for _, name := range []string{"tcp", "tcp6"} {
				b, err := os.ReadFile("/proc/thread-self/net/" + name)
				if err != nil {
					return err
				}
				tables = append(tables, b...)
			}
			return nil
		})
		if err != nil || listener.Match(tables) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return context.Cause(ctx)
}

// sockperf returns the median round trip in us. The program itself reports half of it.
func sockperf(ctx context.Context, from, to *lab.Pod) (float64, error) {
	addr := to.Addr(4).String()
	server := exec.Command("taskset", "-c", "1", "sockperf", "server", "--tcp", "-i", addr)
	if err := to.NS.Start(server); err != nil {
		return 0, err
	}
	defer func() { _ = server.Wait() }()
	defer func() { _ = server.Process.Kill() }()
	if err := listening(ctx, to, 11111); err != nil {
		return 0, err
	}
	out, err := from.Command(ctx, "taskset", "-c", "0", "sockperf", "ping-pong", "--tcp", "-i", addr, "-m",
		"64", "-t", "1")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`percentile 50\.0+ = +([\d.]+)`).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no median in its output: %s", out)
	}
	half, err := strconv.ParseFloat(string(m[1]), 64)
	return 2 * half, err
}

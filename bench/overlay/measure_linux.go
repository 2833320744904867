package overlay

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"weft/bench/load"
	"weft/test/lab/probe"
)

// Value is a figure with its unit. Whether more is better, the unit tells: only what ends in
// "/s" is.
type Value struct {
	Unit string
	N    float64
}

// measure is one thing that is measured of every rung.
type measure struct {
	name string // for Config
	key  string // in the benchmark's name
	take func(context.Context, *bed) ([]Value, error)
}

// measures are all of them. The first value of each is the one that ratios are for.
func measures(c Config) []measure {
	var l []measure
	for _, streams := range []int{1, 4} {
		l = append(l, measure{"tcp", fmt.Sprintf("measure=tcp/streams=%d", streams),
			func(ctx context.Context, b *bed) ([]Value, error) { return b.tcp(ctx, c, streams) }})
	}
	for _, mode := range []load.SendMode{load.SendTo, load.Segment} {
		l = append(l, measure{"packets", fmt.Sprintf("measure=packets/size=%d/send=%s/receive=%s", c.Size, mode, c.Receive),
			func(ctx context.Context, b *bed) ([]Value, error) { return b.packets(ctx, c, mode) }})
	}
	for _, pinned := range []bool{true, false} {
		placement := "any"
		if pinned {
			placement = "0,1"
		}
		if pinned && runtime.NumCPU() < 2 {
			continue // there is one placement only
		}
		l = append(l, measure{"pingpong", fmt.Sprintf("measure=pingpong/size=%d/cpus=%s", c.Size, placement),
			func(ctx context.Context, b *bed) ([]Value, error) { return b.pingPong(ctx, c, pinned) }})
	}
	return l
}

func (c Config) measures() (l []measure) {
	for _, m := range measures(c) {
		if len(c.Measures) == 0 || slices.Contains(c.Measures, m.name) {
			l = append(l, m)
		}
	}
	return l
}

func (b *bed) tcp(ctx context.Context, c Config, streams int) ([]Value, error) {
	pids := b.pids()
	r, err := load.TCP(ctx, load.TCPPlan{From: b.from, To: b.to, Streams: streams, Duration: c.TCP, PIDs: pids})
	if err != nil {
		return nil, err
	}
	v := []Value{{"Gb/s", r.GigabitsPerSecond()}, {"cpu-s/GB", r.PerGigabyte(r.CPU.Machine)}}
	if len(pids) > 0 {
		v = append(v, Value{"weftd-s/GB", r.PerGigabyte(r.CPU.Processes)})
	}
	return v, nil
}

func (b *bed) packets(ctx context.Context, c Config, mode load.SendMode) (v []Value, err error) {
	f, err := load.NewFlow(b.from, b.to, mode, c.Receive, c.Size)
	if err != nil {
		return nil, err
	}
	best, _, err := load.Search(c.Loss, func(rate float64) (load.Trial, error) { return f.Trial(ctx, rate, c.Trial) })
	if closing := f.Close(); err == nil {
		err = closing
	}
	return []Value{{"kpackets/s", best.Delivered() / 1000}, {"%lost", 100 * best.Loss()}}, err
}

func (b *bed) pingPong(ctx context.Context, c Config, pinned bool) ([]Value, error) {
	p := load.PingPongPlan{From: b.from, To: b.to, Size: c.Size, Duration: c.Ping, FromCPU: load.AnyCPU, ToCPU: load.AnyCPU}
	if pinned {
		p.FromCPU, p.ToCPU = 0, 1
	}
	rtts, err := load.PingPong(ctx, p)
	if err != nil {
		return nil, err
	}
	us := func(q float64) float64 { return float64(probe.Quantile(rtts, q)) / float64(time.Microsecond) }
	return []Value{{"us-rtt-p50", us(0.5)}, {"us-rtt-p99", us(0.99)}}, nil
}

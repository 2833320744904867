package plan

import (
	"context"
	"fmt"
	"time"

	"weft/bench/load"
	"weft/bench/report"
	"weft/test/lab/probe"
)

// measure is one thing that is measured on every path.
type measure struct {
	report.Measure
	// take measures a path, for as long as the Config says, and returns the values; ratios are taken of the
	// first. It returns none if there is no such thing to measure on that path.
	take func(context.Context, Config, *Path) ([]report.Value, error)
	// cost is about how long take takes.
	cost time.Duration
}

// Kind Mixed has so many flows of simple IMIX: frames of 64, 594 and 1418 bytes at 7:4:1, with the
// frame's header and check sequence. The largest is below 1518 so that it fits every overlay.
const imixFlows = 1000

func imixFrames() (frames, weights []int) { return []int{64, 594, 1418}, []int{7, 4, 1} }

// searchTrials is how many trials a search makes on average, and strictTrials how many more a search
// without loss makes after it. A search needs fewest where the path is faster than the sender, and about
// ten, with five more without loss, where the path loses packets.
const (
	searchTrials = 4
	strictTrials = 1
	between      = 40 * time.Millisecond // after each trial, until nothing arrives any more
)

// measures returns what c asks to measure on paths with that MTU, in the order of a round. A wire that has a
// name is in the measures' keys.
func (c Config) measures(wire string, mtu int, ipv6 bool, cpus int) (l []measure) {
	for _, k := range c.Kinds {
		switch k {
		case report.TCP:
			l = append(l, c.tcp(1), c.tcp(4))
		case report.Packets:
			l = append(l, c.packets(load.SendTo), c.packets(load.Segment))
		case report.Mixed:
			l = append(l, c.mixed(mtu, ipv6))
		case report.Frames, report.Super:
			for _, f := range c.Frames {
				l = append(l, c.frames(k, f, mtu, ipv6))
			}
		case report.PingPong:
			if cpus > 1 { // with one CPU there is no other placement
				l = append(l, c.pingPong(Placement{0, 1}), c.pingPong(Placement{0, 0}))
			}
			l = append(l, c.pingPong(anywhere()))
		case report.Memory:
			l = append(l, memory())
		}
	}
	for i := range l {
		if m := &l[i]; wire != "" {
			m.Wire = wire
			m.Key += "/wire=" + wire
		}
	}
	return l
}

// superpacket is how many bytes of payload count as one superpacket.
const superpacket = 64 << 10

func (c Config) tcp(streams int) measure {
	title := "TCP, 1 stream"
	if streams > 1 {
		title = fmt.Sprintf("TCP, %d streams", streams)
	}
	return measure{
		Measure: report.Measure{Kind: report.TCP, Key: fmt.Sprintf("measure=tcp/streams=%d", streams), Title: title,
			Streams: streams},
		cost: c.TCP + c.WarmUp + 20*time.Millisecond,
		take: func(ctx context.Context, c Config, p *Path) ([]report.Value, error) {
			r, err := p.Ends.TCP(ctx, streams, c.WarmUp, c.TCP)
			if err != nil {
				return nil, err
			}
			v := []report.Value{
				{Name: "throughput_gigabits_per_second", Unit: "Gb/s", N: r.GigabitsPerSecond()},
				{Name: "cpu_seconds_per_gigabyte", Unit: "cpu-s/GB", N: r.PerGigabyte(r.CPU.Machine)},
			}
			if r.CPU.Processes > 0 {
				name, unit := report.DaemonCPU, "daemon-s/GB"
				if p.Daemon == "" {
					name, unit = report.WeftdCPU, "weftd-s/GB"
				}
				v = append(v, report.Value{Name: name, Unit: unit, N: r.PerGigabyte(r.CPU.Processes)})
			}
			return append(v,
				report.Value{Name: "softirq_cpu_seconds_per_gigabyte", Unit: "softirq-s/GB",
					N: r.PerGigabyte(r.CPU.SoftIRQ)},
				report.Value{Name: "context_switches_per_superpacket", Unit: "switches/64KiB",
					N: float64(r.CPU.Switches) / (float64(r.Bytes) / superpacket)}), nil
		},
	}
}

// rate opens a flow and searches for its highest rate; with strict it then searches for the highest without
// any loss.
func (c Config) rate(ctx context.Context, p *Path, t load.Traffic, strict bool) (v []report.Value,
	err error) {
	f, err := p.Ends.Open(ctx, t)
	if err != nil {
		return nil, err
	}
	try := func(rate float64) (load.Trial, error) { return f.Trial(ctx, rate, c.Trial) }
	best, _, err := load.Search(c.Loss, try)
	v = []report.Value{
		{Name: "delivered_kilopackets_per_second", Unit: "kpackets/s", N: best.Delivered() / 1000},
		{Name: "lost_percent", Unit: "%lost", N: 100 * best.Loss()},
	}
	if err == nil && strict {
		var none load.Trial
		if none, _, err = load.SearchBelow(0, best, try); none.Sent > 0 {
			v = append(v, report.Value{Name: Lossless, Unit: "kpackets-lossless/s", N: none.Delivered() / 1000})
		} else {
			v = append(v, report.Value{Name: Lossless, Unit: "kpackets-lossless/s"})
		}
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return v, err
}

// Lossless is the name of the figure that a search without any loss finds. It is 0 if every rate lost
// something.
const Lossless = "lossless_kilopackets_per_second"

// datagrams is a search for the highest rate of traffic, which key and m describe.
func (c Config) datagrams(key string, m report.Measure, t load.Traffic, strict bool) measure {
	m.Key = fmt.Sprintf("measure=%s/send=%s/receive=drain", key, t.Mode)
	trials := searchTrials
	if strict {
		trials += strictTrials
	}
	return measure{Measure: m, cost: time.Duration(trials) * (c.Trial + between),
		take: func(ctx context.Context, c Config, p *Path) ([]report.Value, error) {
			return c.rate(ctx, p, t, strict)
		}}
}

func (c Config) packets(mode load.SendMode) measure {
	title := fmt.Sprintf("UDP, %d bytes of payload, one flow, a system call each", c.Size)
	if mode == load.Segment {
		title = fmt.Sprintf("UDP, %d bytes of payload, one flow, sent as superpackets", c.Size)
	}
	return c.datagrams(fmt.Sprintf("packets/size=%d", c.Size),
		report.Measure{Kind: report.Packets, Title: title, Payload: c.Size}, load.Single(mode, c.Size), false)
}

func (c Config) mixed(mtu int, ipv6 bool) measure {
	t := load.Traffic{Mode: load.SendTo, Flows: imixFlows}
	var frames []int
	frames, t.Weights = imixFrames()
	for _, f := range frames {
		t.Payloads = append(t.Payloads, fit(f, mtu, ipv6))
	}
	title := fmt.Sprintf("UDP, %d flows of mixed sizes (simple IMIX: frames of %d, %d and %d bytes at 7:4:1)",
		imixFlows, frames[0], frames[1], frames[2])
	return c.datagrams(fmt.Sprintf("mixed/flows=%d", imixFlows),
		report.Measure{Kind: report.Mixed, Title: title}, t, false)
}

func (c Config) frames(k report.Kind, frame, mtu int, ipv6 bool) measure {
	payload := fit(frame, mtu, ipv6)
	packet := payload + headers(ipv6)
	mode, send := load.SendTo, "a system call each"
	if k == report.Super {
		mode, send = load.Segment, "sent as superpackets"
	}
	title := fmt.Sprintf("UDP, frames of %d bytes, one flow, %s", packet+frameAround, send)
	if packet+frameAround != frame {
		title += fmt.Sprintf(" (%d asked for)", frame)
	}
	m := report.Measure{Kind: k, Title: title, Nominal: frame, Frame: packet + frameAround, Packet: packet,
		Payload: payload}
	return c.datagrams(fmt.Sprintf("%s/frame=%d", k, frame), m, load.Single(mode, payload), true)
}

func (c Config) pingPong(at Placement) measure {
	placement, title := at.String(), "TCP ping-pong, ends wherever the kernel puts them"
	switch {
	case at == anywhere():
	case at.From == at.To:
		title = fmt.Sprintf("TCP ping-pong, both ends pinned to CPU %d", at.From)
	default:
		title = fmt.Sprintf("TCP ping-pong, ends pinned to CPU %d and CPU %d", at.From, at.To)
	}
	return measure{
		Measure: report.Measure{Kind: report.PingPong, Key: fmt.Sprintf("measure=pingpong/size=%d/cpus=%s", c.Size,
			placement), Title: title, Placement: placement, Payload: c.Size},
		cost: c.Ping + c.Ping/5,
		take: func(ctx context.Context, c Config, p *Path) ([]report.Value, error) {
			h, err := p.Ends.PingPong(ctx, c.Size, c.Ping, at)
			if err != nil {
				return nil, err
			}
			us := func(q float64) float64 { return float64(probe.Quantile(h, q)) / float64(time.Microsecond) }
			return []report.Value{
				{Name: "round_trip_p50_microseconds", Unit: "us-rtt-p50", N: us(0.5)},
				{Name: "round_trip_p90_microseconds", Unit: "us-rtt-p90", N: us(0.9)},
				{Name: "round_trip_p99_microseconds", Unit: "us-rtt-p99", N: us(0.99)},
				{Name: "round_trip_p99_9_microseconds", Unit: "us-rtt-p99.9", N: us(0.999)},
			}, nil
		},
	}
}

// memory looks at what the daemon holds resident. It comes last in a round, after the load.
func memory() measure {
	const mebibyte = 1 << 20
	return measure{
		Measure: report.Measure{Kind: report.Memory, Key: "measure=memory",
			Title: "Memory resident in the daemon after the round's load"},
		take: func(_ context.Context, _ Config, p *Path) ([]report.Value, error) {
			if p.Memory == nil {
				return nil, nil
			}
			now, peak, err := p.Memory()
			return []report.Value{
				{Name: "resident_mebibytes", Unit: "MiB-resident", N: float64(now) / mebibyte},
				{Name: "peak_resident_mebibytes", Unit: "MiB-peak", N: float64(peak) / mebibyte},
			}, err
		},
	}
}

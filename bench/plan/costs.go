package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weft/bench/perf"
	"weft/bench/report"
)

// tcpHeaders are those of a TCP segment with timestamps, without the IP header.
const tcpHeaders = 20 + 12

// costs measures bulk data once more, now with counts and samples that would slow down a measurement of
// throughput.
func (c Config) costs(streams int) measure {
	title := "What TCP costs, 1 stream"
	if streams > 1 {
		title = fmt.Sprintf("What TCP costs, %d streams", streams)
	}
	return measure{
		Measure: report.Measure{Kind: report.Costs, Key: fmt.Sprintf("measure=costs/streams=%d", streams),
			Title: title, Streams: streams},
		cost: c.TCP + c.WarmUp + 150*time.Millisecond,
		take: func(ctx context.Context, c Config, p *Path) ([]report.Value, error) {
			ends, ok := p.Ends.(Costing)
			if !ok {
				return nil, nil
			}
			r, err := ends.Costs(ctx, streams, c.WarmUp, c.TCP)
			for _, why := range r.Missing {
				if note := why.Error(); !slices.Contains(p.Notes, note) {
					p.Notes = append(p.Notes, note)
				}
			}
			if err != nil {
				return nil, err
			}
			return r.values(p), nil
		},
	}
}

// values returns the costs in the order of a table's columns, without those that are not known.
func (r Costs) values(p *Path) []report.Value {
	v := []report.Value{
		{Name: "cpu_seconds_per_gigabyte", Unit: "cpu-s/GB", N: r.PerGigabyte(r.CPU.Machine)},
		{Name: "softirq_cpu_seconds_per_gigabyte", Unit: "softirq-s/GB", N: r.PerGigabyte(r.CPU.SoftIRQ)},
		{Name: "context_switches_per_superpacket", Unit: "switches/64KiB",
			N: float64(r.CPU.Switches) / (float64(r.Bytes) / superpacket)},
	}
	if r.Copies != nil {
		v = append(v, report.Value{Name: "kernel_copies_percent_of_busy_cpu", Unit: "%copies",
			N: r.Copies.Percent()})
	}
	header := ipv4Header
	if p.IPv6 {
		header = ipv6Header
	}
	packets := float64(r.Bytes) / float64(p.MTU-header-tcpHeaders)
	for _, end := range []struct {
		name  string
		count *perf.Count
	}{{"sending", r.Sender}, {"receiving", r.Receiver}} {
		if end.count == nil {
			continue
		}
		v = append(v,
			report.Value{Name: "packets_per_read_of_" + end.name + "_node", Unit: "packets/read-" + end.name,
				N: packets / float64(max(1, end.count.Reads))},
			report.Value{Name: "packets_per_send_of_" + end.name + "_node", Unit: "packets/send-" + end.name,
				N: packets / float64(max(1, end.count.Sends))})
	}
	return v
}

// superpacket is how many bytes of payload count as one superpacket.
const superpacket = 64 << 10

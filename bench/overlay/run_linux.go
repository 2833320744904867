package overlay

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/lab"
)

// raising is about how long a rung's lab takes to come up.
const raising = 700 * time.Millisecond

// Estimate returns about how long Run takes.
func (c Config) Estimate(cpus int) time.Duration {
	rungs, err := choose(c.Rungs)
	if err != nil {
		return 0
	}
	once := 0
	if slices.ContainsFunc(rungs, func(r Rung) bool { return r.Name == Veth }) {
		once = 1
	}
	return time.Duration(len(c.Wires)) *
		(time.Duration(len(rungs))*raising + c.Config.Estimate(len(rungs), once, cpus))
}

// Run builds the labs, measures, and takes them down again, one wire after the other. It tells say
// what it builds, and out how measuring goes on. With an error it still returns the document, with
// what was measured until then, or, with a *plan.GapsError, all that could be measured.
func Run(ctx context.Context, c Config, out plan.Out, say func(string)) (*report.Document, error) {
	d := report.New()
	if err := c.Check(); err != nil {
		return d, err
	}
	rungs, _ := choose(c.Rungs) // Check has tried it
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return d, err
	}
	defer os.RemoveAll(dir)
	programs, missing, err := c.find(ctx, dir)
	if err != nil {
		return d, err
	}
	var left []string // which rungs were left out, and why
	if missing != nil {
		if slices.Contains(c.Rungs, WireGuard) && !slices.Equal(c.Rungs, Usual()) {
			return d, fmt.Errorf("rung %s: %w", WireGuard, missing)
		}
		rungs = slices.DeleteFunc(rungs, func(r Rung) bool { return r.Name == WireGuard })
		left = append(left, fmt.Sprintf("rung %s was left out: %v", WireGuard, missing))
	}
	var stages []plan.Stage
	for _, wire := range c.Wires {
		stages = append(stages, plan.Stage{
			Wire: report.Wire{Name: wire, About: aboutWire(wire)},
			Raise: func(ctx context.Context) (paths []*plan.Path, err error) {
				for _, r := range rungs {
					b, err := r.raise(ctx, wire, programs, say)
					if err != nil {
						return paths, err
					}
					paths = append(paths, b.path())
				}
				return paths, nil
			},
		})
	}
	d, err = plan.Run(ctx, c.Config, stages, reference(rungs), out)
	d.Topology = "pod – bridge – node – veth – node – bridge – pod, in network namespaces of one machine; a " +
		"1500-byte underlay"
	if c.needs(directly) {
		d.Topology += "; a pod that is attached directly has no bridge"
	}
	d.Notes = append(d.Notes, notes(d)...)
	d.Notes = append(d.Notes, left...)
	return d, err
}

func aboutWire(wire string) string {
	switch wire {
	case lab.WireFull:
		return "a veth pair as it is made, which passes on superpackets of every kind whole, as no network card " +
			"does"
	case lab.WireUSO:
		return "like a card that cuts runs of UDP datagrams, which cross whole, but no tunnel's superpackets; " +
			"what arrives takes NAPI and GRO"
	}
	return "like a card that cuts TCP only, as in most virtual machines; what arrives takes NAPI and GRO"
}

// reference returns Reference if that rung is measured, else NodeBridge if that is, else "".
func reference(rungs []Rung) string {
	for _, name := range []string{Reference, NodeBridge} {
		if slices.ContainsFunc(rungs, func(r Rung) bool { return r.Name == name }) {
			return name
		}
	}
	return ""
}

// notes say what a run on one machine cannot show.
func notes(d *report.Document) []string {
	l := []string{
		"Both pods, both nodes and both daemons share this machine's CPUs, sender and receiver included: a " +
			"throughput is a cost turned round. It ranks ways of carrying packets and predicts no physical network: " +
			"no NIC, no wire, no interrupt moderation, no RSS, no second machine.",
		"Absolute figures move with the minute; the rungs take turns, and a ratio is taken within a round. " +
			"Compare ratios.",
		"An Ethernet frame counts 18 bytes more than its IP packet. A frame that does not fit the smallest MTU " +
			"of all rungs is made as large as that allows, the same for all.",
		"The pods of weft's rungs have the gso_max_size that makes a superpacket fit one send; the kernel's own " +
			"have the default.",
	}
	for _, r := range d.Rungs {
		if r.Name == Veth {
			l = append(l, "The rung veth is the generators' own ceiling; it is measured in the first round only, "+
				"and has no ratio.")
		}
	}
	return l
}

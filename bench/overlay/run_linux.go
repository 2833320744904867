package overlay

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"weft/bench/machine"
	"weft/bench/plan"
	"weft/bench/report"
)

// raising is about how long a rung's lab takes to come up.
const raising = 700 * time.Millisecond

// Estimate is about how long Run takes.
func (c Config) Estimate(cpus int) time.Duration {
	rungs, err := choose(c.Rungs)
	if err != nil {
		return 0
	}
	once := 0
	for _, r := range rungs {
		if r.way == link {
			once++
		}
	}
	return time.Duration(len(rungs))*raising + c.Config.Estimate(len(rungs), once, cpus)
}

// Run builds the labs, measures, and takes them down again. What is being built goes to
// say, and the rest to out. The document is returned with an error too, as far as it got.
func Run(ctx context.Context, c Config, out plan.Out, say func(string)) (*report.Document, error) {
	if err := c.Check(); err != nil {
		return report.New(), err
	}
	rungs, err := choose(c.Rungs)
	if err != nil {
		return report.New(), err
	}
	dir, err := os.MkdirTemp("", "weft-bench-")
	if err != nil {
		return report.New(), err
	}
	defer os.RemoveAll(dir)
	if c.Weftd == "" && c.NeedsWeftd() {
		if c.Weftd, err = build(ctx, dir); err != nil {
			return report.New(), err
		}
	}
	watch, err := machine.Observe()
	if err != nil {
		return report.New(), err
	}
	var paths []*plan.Path
	for _, r := range rungs {
		b, err := r.raise(ctx, c.Weftd, say)
		if err != nil {
			return report.New(), err
		}
		defer b.close()
		paths = append(paths, b.path())
	}
	d, err := plan.Run(ctx, c.Config, paths, reference(rungs), out)
	d.Topology = "pod – bridge – node – veth – node – bridge – pod, in network namespaces of one machine; a 1500-byte underlay"
	d.Notes = append(d.Notes, notes(d)...)
	var watchErr error
	d.Machine, watchErr = watch.Since()
	return d, errors.Join(err, watchErr)
}

// reference is the rung that ratios are to, if it is among them.
func reference(rungs []Rung) string {
	if slices.ContainsFunc(rungs, func(r Rung) bool { return r.Name == Reference }) {
		return Reference
	}
	return ""
}

// notes are what this machine cannot show.
func notes(d *report.Document) []string {
	l := []string{
		"Both pods, both nodes and both daemons share this machine's CPUs, sender and receiver included: a throughput is a cost turned round. It ranks ways of carrying packets and predicts no physical network: no NIC, no wire, no interrupt moderation, no RSS, no second machine.",
		"Absolute figures move with the minute; the rungs take turns, and a ratio is taken within a round. Compare ratios.",
		"An Ethernet frame counts 18 bytes more than its IP packet. A frame that does not fit the smallest MTU of all rungs is made as large as that allows, the same for all.",
		"The pods of weft's rungs have the gso_max_size that makes a superpacket fit one send; the kernel's own have the default.",
	}
	for _, r := range d.Rungs {
		if r.Name == "veth" {
			l = append(l, "The rung veth is the generators' own ceiling; it is measured in the first round only, and has no ratio.")
		}
	}
	return l
}

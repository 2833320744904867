// Package benchcmd has weft bench, which measures weft beside the kernel, or between two hosts.
package benchcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/bench/overlay"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/labcmd"
	"weft/test/lab"
	"weft/test/lab/holder"
)

// benchFlags are those of `weft bench`.
type benchFlags struct {
	version                                     string
	quick, full, quiet, rootless, reverse, ipv6 bool
	overlay.Config
	measures                         []string
	json, html, markdown, benchstat  output
	lab, from, to, through, topology string
}

func Command(app *cli.App) *cobra.Command {
	f := benchFlags{version: app.Version, json: output{flag: "json"}, html: output{flag: "html"},
		markdown: output{flag: "markdown"}, benchstat: output{flag: "benchstat"}}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure weft beside the kernel's own ways, or between two pods or nodes",
		Long: `Measure weft beside the kernel's own ways, or between two pods or nodes.

Alone, it builds labs on this machine, one for each rung: plain routes and vxlan of the
kernel by hand, each path of weftd, weftd with nothing configured, and wireguard-go; they take
turns, round after round, on one wire after the other. With --lab it measures between two hosts of
a lab that is up, and with --to and --through to another machine or pod, where it starts the far
end by that command. That needs no privilege there.

Measured: TCP over 1 and 4 streams with its processor time, the highest rate of datagrams
that loses no more than --loss (a search by trials in the manner of RFC 2544) for one flow,
for 1000 flows of mixed sizes and for each frame size, round trips of a TCP ping-pong, and
weftd's memory. A frame size counts the Ethernet header and check sequence, 18 bytes.`,
		Example: "  weft bench\n  weft bench --quick --rungs vxlan,socket --html bench.html\n" +
			"  weft lab up && weft bench --lab lab --from node1-pod1 --to node2-pod1\n  weft bench --to 10.42.2.2 " +
			"--through 'ssh node2' --reverse\n" +
			"  weft bench --to 10.42.2.2 --through 'kubectl exec -i pod2 --' --json -",
		Args:              cobra.NoArgs,
		PersistentPreRunE: labcmd.Init,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd); err != nil {
				return cli.AsUsage(err)
			}
			// Before hours of measuring it is known whether the results can be written.
			for _, o := range f.outputs() {
				if err := o.open(cmd.OutOrStdout()); err != nil {
					return cli.Usagef("--%s: %w", o.flag, err)
				}
			}
			switch {
			case f.lab != "":
				return benchLab(f)
			case f.from != "":
				return cli.Usagef("--from goes with --lab: without a lab, this machine is the one end, and --to " +
					"the other")
			case f.to != "" || f.through != "":
				return benchThrough(cmd, f)
			}
			return benchLadder(cmd, f)
		},
	}
	f.bind(cmd)
	cmd.AddCommand(benchEndCommand())
	return cmd
}

func (f *benchFlags) bind(cmd *cobra.Command) {
	s := cmd.Flags()
	var rungs, kinds []string
	wires := lab.Wires()
	for _, r := range overlay.Rungs() {
		rungs = append(rungs, r.Name)
	}
	for _, k := range report.Kinds() {
		kinds = append(kinds, string(k))
	}
	s.BoolVar(&f.quick, "quick", false, "well under a minute: one short round")
	s.BoolVar(&f.full, "full", false, "long: more rounds, and longer ones")
	s.BoolVarP(&f.quiet, "quiet", "q", false, "no progress")
	s.StringSliceVar(&f.Rungs, "rungs", nil, "`names` among "+strings.Join(rungs, ", ")+" (default: "+
		strings.Join(overlay.Usual(), ", ")+"; with --full also veth, portable and direct)")
	s.StringSliceVar(&f.Wires, "wire", nil, "what lies between the nodes: `kinds` among "+
		strings.Join(wires, ", ")+", one after the other (default: uso and plain; plain with --quick, all with "+
		"--full)")
	s.StringSliceVar(&f.measures, "measures", nil, "`names` among "+strings.Join(kinds, ", ")+" (default: all)")
	s.IntVar(&f.Rounds, "rounds", 0, "how often each rung is measured")
	s.IntVar(&f.SweepRounds, "sweep-rounds", 0, "how often with each frame size")
	s.IntVar(&f.PingRounds, "ping-rounds", 0,
		"how often a ping-pong is measured (default: 10, or what --rounds is)")
	s.IntSliceVar(&f.Frames, "frames", nil, "frame `sizes` in bytes")
	s.IntVar(&f.Size, "size", 0, "payload of the small datagrams and of the ping-pong, in bytes")
	s.DurationVar(&f.TCP, "tcp", 0, "how long one TCP measurement lasts")
	s.DurationVar(&f.Trial, "trial", 0, "how long one trial of a packet rate lasts")
	s.DurationVar(&f.Ping, "ping", 0, "how long one ping-pong lasts")
	s.Float64Var(&f.Loss, "loss", 0, "the `share` of the datagrams that may be lost (default 0.005)")
	s.StringVar(&f.json.name, "json", "",
		"write the result as JSON to this `file`; - is standard output, instead of the table")
	s.StringVar(&f.html.name, "html", "", "write the result as one HTML page to this `file`")
	s.StringVar(&f.markdown.name, "markdown", "",
		"write the medians as a table in Markdown to this `file`, with a block of columns for each wire")
	s.StringVar(&f.benchstat.name, "benchstat", "",
		"write each measurement as a line for benchstat to this `file`; - is standard output, before the table")
	s.StringVar(&f.Weftd, "weftd", "", "the weftd to measure (default: the one beside this program, then in "+
		"$PATH)")
	s.BoolVar(&f.rootless, "rootless", false, "use a user namespace even as root")
	labcmd.NameLab(cmd, &f.lab, "", "measure between two hosts of the lab of this `name`, which is up")
	s.StringVar(&f.from, "from", "", "the `host` of the lab that sends: a pod (node1-pod1), or a node, whose "+
		"underlay it is then")
	s.StringVar(&f.to, "to", "", "the `host` of the lab that receives; without --lab the address[:port] or "+
		"name of the other end (default port 5210, TCP and UDP)")
	s.StringVar(&f.through, "through", "", "the `command` that runs weft at the other end, such as 'ssh "+
		"node2' or 'kubectl exec -i pod2 --'")
	s.BoolVar(&f.reverse, "reverse", false, "with --to: measure the way back too, in turns")
	s.BoolVar(&f.ipv6, "ipv6", false, "with --to: IPv6, where a name or a host of a lab has both")
	s.StringVar(&f.topology, "topology", "", "what lies between the ends, for the report")
	_ = s.MarkHidden("topology") // fails only for a flag that is not there
	cmd.MarkFlagsMutuallyExclusive("quick", "full")
	for _, ours := range []string{"rungs", "wire", "through"} {
		cmd.MarkFlagsMutuallyExclusive("lab", ours)
	}
	for _, ours := range []string{"rungs", "wire"} {
		cmd.MarkFlagsMutuallyExclusive("to", ours)
	}
	ends := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return labcmd.HostNames(f.lab), cobra.ShellCompDirectiveNoFileComp
	}
	cli.CompleteFlags(cmd, map[string]cli.Completer{"wire": cli.ManyOf(wires), "rungs": cli.ManyOf(rungs),
		"measures": cli.ManyOf(kinds), "from": ends, "to": ends})
}

// complete takes what no flag gave from the preset, and checks everything.
func (f *benchFlags) complete(cmd *cobra.Command) error {
	p := plan.Default()
	switch {
	case f.quick:
		p = plan.Quick()
	case f.full:
		p = plan.Full()
	}
	given := cmd.Flags().Changed
	if given("rounds") {
		p.PingRounds = f.Rounds
	}
	preset(given("rounds"), &f.Rounds, p.Rounds)
	preset(given("ping-rounds"), &f.PingRounds, p.PingRounds)
	preset(given("sweep-rounds"), &f.SweepRounds, p.SweepRounds)
	preset(given("frames"), &f.Frames, p.Frames)
	preset(given("size"), &f.Size, p.Size)
	preset(given("tcp"), &f.TCP, p.TCP)
	preset(given("trial"), &f.Trial, p.Trial)
	preset(given("ping"), &f.Ping, p.Ping)
	preset(given("loss"), &f.Loss, p.Loss)
	preset(len(f.Wires) > 0, &f.Wires, f.usualWires())
	preset(len(f.Rungs) > 0 || f.full, &f.Rungs, overlay.Usual())
	f.WarmUp, f.Kinds = p.WarmUp, p.Kinds
	if given("measures") {
		f.Kinds = nil
		for _, m := range f.measures {
			f.Kinds = append(f.Kinds, report.Kind(m))
		}
	}
	return f.Check()
}

func preset[T any](given bool, value *T, otherwise T) {
	if !given {
		*value = otherwise
	}
}

// usualWires are those of a run that names none.
func (f *benchFlags) usualWires() []string {
	switch {
	case f.quick:
		return []string{lab.WirePlain}
	case f.full:
		return lab.Wires()
	}
	return []string{lab.WireUSO, lab.WirePlain}
}

// benchLadder measures the rungs on this machine.
func benchLadder(cmd *cobra.Command, f benchFlags) error {
	if holder.NeedsIsolation(f.rootless) {
		return cli.StatusError(holder.Isolated())
	}
	ctx, stop := cli.WithHangup(cmd.Context())
	defer stop()
	return f.measure(cmd, f.Estimate(runtime.NumCPU()),
		func(out plan.Out, say func(string)) (*report.Document, error) {
			return overlay.Run(ctx, f.Config, out, say)
		})
}

// measure says how long it will take, runs, and writes the result wherever it was asked for.
func (f *benchFlags) measure(cmd *cobra.Command, estimate time.Duration,
	run func(plan.Out, func(string)) (*report.Document, error)) error {
	line := newProgressLine(cmd.ErrOrStderr(), f.quiet)
	if !f.quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), "weft bench: this takes about %s (see --quick, --full, --measures)\n",
			cli.Span(estimate))
	}
	d, err := run(plan.Out{Lines: f.benchstat.begin(), Say: line.progress, Whole: estimate}, line.say)
	line.clear()
	if len(d.Measures) == 0 {
		return labcmd.Explained(err)
	}
	d.Tool, d.Command = f.version, strings.Join(append([]string{"weft"}, shown(os.Args)...), " ")
	var gaps *plan.GapsError
	if err != nil && (!errors.As(err, &gaps) || gaps.Early) {
		d.Notes = append(d.Notes, "It ended before its time, and what is here is not all: "+err.Error())
	}
	return errors.Join(labcmd.Explained(err), f.write(cmd.OutOrStdout(), d))
}

// shown returns the arguments, quoted where a shell needs it.
func shown(args []string) (l []string) {
	for _, a := range args[min(1, len(args)):] {
		if strings.ContainsAny(a, " '\"") {
			a = strconv.Quote(a)
		}
		l = append(l, a)
	}
	return l
}

// output is where a flag has a result written.
type output struct {
	flag, name string    // - is standard output
	w          io.Writer // nil for none
}

func (f *benchFlags) outputs() []*output {
	return []*output{&f.json, &f.html, &f.markdown, &f.benchstat}
}

// open leaves a file that is there as it is.
func (o *output) open(stdout io.Writer) (err error) {
	switch o.name {
	case "":
	case "-":
		o.w = stdout
	default:
		o.w, err = os.OpenFile(o.name, os.O_WRONLY|os.O_CREATE, 0o644)
	}
	return err
}

// begin empties the file.
func (o *output) begin() io.Writer {
	if file, ok := o.w.(*os.File); ok && o.name != "-" {
		_ = file.Truncate(0) // fails for a pipe
	}
	return o.w
}

func (o *output) write(result func(io.Writer) error) error {
	if o.w == nil {
		return nil
	}
	return result(o.begin())
}

func (f *benchFlags) write(stdout io.Writer, d *report.Document) (err error) {
	if f.benchstat.name == "-" {
		fmt.Fprintln(stdout)
	}
	if f.json.name != "-" {
		err = d.WriteTable(stdout)
	}
	return errors.Join(err, f.json.write(d.WriteJSON), f.html.write(d.WriteHTML),
		f.markdown.write(d.WriteMarkdown))
}

package labcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
	"weft/test/lab"
	"weft/test/lab/holder"
)

func labRunCommand() *cobra.Command {
	var f labFlags
	var asJSON bool
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Bring a lab up, show that its pods talk, measure, clean up",
		Long: "Bring a lab up, let every pod ping every other, send a TCP stream between two nodes' pods,\n" +
			"print a table, and take the lab down, however it ends. The exit status is 0 if all reached all.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := f.spec()
			if err != nil {
				return cli.AsUsage(err)
			}
			if duration < 0 {
				return cli.Usagef("--duration %s: want 0, for no stream, or more", duration)
			}
			if holder.NeedsIsolation(f.Rootless) {
				return cli.StatusError(holder.Isolated())
			}
			if f.name == "" {
				f.name = fmt.Sprintf("run-%x", time.Now().UnixNano()&0xffffffff)
			}
			return labRun(cmd, f, spec, duration, asJSON)
		},
	}
	f.bind(cmd)
	NameLab(cmd, &f.name, "", "the lab's `name` (default: a new one)")
	cmd.Flags().DurationVar(&duration, "duration", 3*time.Second,
		"how long the TCP stream of each family lasts; 0 for none")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

func labRun(cmd *cobra.Command, f labFlags, spec lab.Spec, duration time.Duration, asJSON bool) error {
	ctx, stop := cli.WithHangup(cmd.Context())
	defer stop()
	if duration == 0 {
		duration = -1
	}
	spec.Progress = progressTo(cmd.ErrOrStderr())
	kept, err := holder.Hold(ctx, holder.Options{
		Name: f.name, Spec: spec, KeepLogs: f.keepLogs,
		Work: func(ctx context.Context, l *lab.Lab) error {
			r, err := l.Measure(ctx, lab.MeasurePlan{Stream: duration})
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr())
			if asJSON {
				err = cli.PrintDocument(cmd.OutOrStdout(), r)
			} else {
				err = r.WriteTable(cmd.OutOrStdout())
			}
			if faults := r.Faults(); err == nil && len(faults) > 0 {
				err = unreached(l, len(faults))
			}
			return err
		},
	})
	if kept != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "logs and state: %s (weft lab down --lab %s removes them)\n", kept, f.name)
	}
	return Explained(err)
}

// unreached blames the first node whose weftd is gone or not ready, else node 1.
func unreached(l *lab.Lab, faults int) error {
	err := fmt.Errorf("%d of the measurements failed", faults)
	if l.Spec.Driver != lab.Weftd {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	suspect := l.Node(1)
	for _, n := range l.Nodes() {
		if readyErr := n.Ready(ctx); readyErr != nil {
			suspect, err = n, fmt.Errorf("%w; %w", err, readyErr)
			break
		}
	}
	return suspect.Fault(err)
}

// Explained adds the last lines of a failing node's log to err's text.
func Explained(err error) error {
	var fault *lab.NodeError
	if errors.As(err, &fault) {
		return errors.New(lab.Explain(err))
	}
	return err
}

// progressTo prints each step with the time since the start.
func progressTo(w io.Writer) func(string) {
	start := time.Now()
	return func(line string) { fmt.Fprintf(w, "%6.2fs  %s\n", time.Since(start).Seconds(), line) }
}

func labUpCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := f.spec()
			if err != nil {
				return cli.AsUsage(err)
			}
			ctx, stop := cli.WithHangup(cmd.Context())
			defer stop()
			if holder.IsHolder() {
				return holder.HoldLaunched(ctx, holder.Options{Name: f.name, Spec: spec, KeepLogs: f.keepLogs})
			}
			info, err := holder.Launch(ctx, f.name, holder.NeedsIsolation(f.Rootless), progressTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return printInfo(cmd.OutOrStdout(), info)
		},
	}
	f.bind(cmd)
	NameLab(cmd, &f.name, defaultLab, "the lab's `name`")
	return cmd
}

// printInfo says which host has which address.
func printInfo(w io.Writer, info *holder.Info) error {
	t := cli.NewTable(w, "HOST", "IPV4", "IPV6", "LOG")
	for _, n := range info.Nodes {
		t.Row(n.Name, n.Underlay4, n.Underlay6, n.Log)
		if n.TUN != n.Name { // it has no address on the wire
			t.Row(n.TUN, "-", "-")
		}
		for _, p := range n.Pods {
			t.Row(p.Name, cli.Join(p.V4), cli.Join(p.V6))
		}
	}
	return t.Flush()
}

package show

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/routing"
)

func statusCommand(c *cli.App) *cobra.Command {
	var live watchFlags
	var wait string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's lease, backend, store and counters",
		Long: "Show the daemon's lease, backend, store and counters.\n\n" +
			"With --wait it waits until the node is ready, or with --wait=peers until also a peer has answered, and " +
			"for a weftd that does not run yet.\n\n" +
			"Exit status: 0 if the node is ready, 3 if it is not, 1 if weftd could not be asked, 2 for wrong usage. " +
			"With --wait it is 1 when\n" +
			"the time is over.",
		Example: "  weft status\n  weft status --wait && start-pods\n  weft status --wait=peers --timeout 2m\n  " +
			"weft status --watch --interval 5s\n  weft status --json | jq .notReady",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && wait == waitReady {
				return cli.Usagef("%q is no argument of weft status: what to wait for stands behind =, as in --wait=%s, "+
					"and how long is --timeout", args[0], waitPeers)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s control.Status
			var err error
			if err := live.check(cmd); err != nil {
				return err
			}
			switch {
			case live.on && wait != "":
				return cli.Usagef("--wait and --watch: one of them only")
			case live.on && !cmd.Flags().Changed("timeout"):
				return watchStatus(cmd.Context(), c, cmd.OutOrStdout(), live.every)
			case wait == "" && cmd.Flags().Changed("timeout"):
				return cli.Usagef("--timeout goes with --wait")
			case wait == "":
				if s, err = c.Client().Status(cmd.Context()); err != nil {
					return err
				}
			case wait != waitReady && wait != waitPeers:
				return cli.Usagef("--wait=%s: want %s or %s", wait, waitReady, waitPeers)
			case limit <= 0:
				return cli.Usagef("--timeout %s: want more than 0", limit)
			default:
				var known bool
				if s, known, err = waitFor(cmd.Context(), c, wait, limit); err != nil {
					if known && c.JSON {
						err = errors.Join(cli.PrintDocument(cmd.OutOrStdout(), s), err)
					}
					return err
				}
			}
			err = c.Print(cmd.OutOrStdout(), s, func(w io.Writer) error { return printStatus(w, s, time.Now()) })
			if err == nil && !s.Ready {
				return cli.ExitNotReady
			}
			return err
		},
	}
	c.Bind(cmd)
	live.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&wait, "wait", "", "wait until the node is `ready`, or until one of its peers has answered too")
	f.Lookup("wait").NoOptDefVal = waitReady
	f.DurationVar(&limit, "timeout", time.Minute, "how `long` --wait waits")
	cli.CompleteFlags(cmd, map[string]cli.Completer{"wait": cli.OneOf(waitReady, waitPeers)})
	return cmd
}

func printStatus(w io.Writer, s control.Status, now time.Time) error {
	if err := printState(w, s, now); err != nil {
		return err
	}
	if routing.CarriesNothing(s.Backend.Path) {
		return printDevices(w, s.Counters.Devices)
	}
	return printCounters(w, s.Counters)
}

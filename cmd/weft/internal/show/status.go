package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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

// States that weft status --wait waits for.
const (
	waitReady = "ready"
	waitPeers = "peers"
)

// waitMost is the longest time between two looks at what is waited for.
const waitMost = time.Second

// waitFor asks the daemon until it is what is waited for, or until limit is over. In the second case the
// error says what was missing, and the status is the last one, if there was any.
func waitFor(ctx context.Context, c *cli.App, what string, limit time.Duration) (s control.Status, known bool,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	missing := "weftd was not asked yet"
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, waitMost) {
		now, errNow := c.Client().Status(ctx)
		switch {
		case errNow != nil && ctx.Err() != nil: // it says nothing about the daemon
		case errNow != nil && !errors.Is(errNow, control.ErrNoDaemon) && !errors.Is(errNow, control.ErrStuck):
			return s, known, errNow // waiting does not help: not root, for one
		case errNow != nil:
			missing = errNow.Error()
		default:
			s, known = now, true
			if missing = missingFor(ctx, c, what, now); missing == "" {
				return s, true, nil
			}
		}
		select {
		case <-ctx.Done():
			return s, known, fmt.Errorf("not %s within %s: %s", what, limit, missing)
		case <-time.After(pause):
		}
	}
}

// missing says what s lacks to be what is waited for; "" if nothing.
func missingFor(ctx context.Context, c *cli.App, what string, s control.Status) string {
	if !s.Ready {
		return strings.Join(s.NotReady, "; ")
	}
	if what != waitPeers {
		return ""
	}
	p, err := c.Client().Peers(ctx)
	if err != nil {
		return err.Error()
	}
	asked := 0
	for _, e := range p.Peers {
		for _, q := range e.Probes {
			if asked++; q.Answers == "yes" {
				return ""
			}
		}
	}
	switch {
	case len(p.Peers) == 0:
		return "there is no peer (see weft lease list)"
	case asked == 0: // nobody asks them here, so that more than their records is not known
		return ""
	}
	return "none of " + cli.Count(len(p.Peers), "peer") + " has answered (see weft peers)"
}

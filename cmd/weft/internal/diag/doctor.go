package diag

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weft/cmd/internal/doctor"
	"weft/cmd/internal/options"
	"weft/cmd/weft/internal/cli"
)

// doctorFlags are those of weft doctor.
type doctorFlags struct {
	*cli.App
	list, all, offline bool
}

func doctorCommand(app *cli.App) *cobra.Command {
	f := &doctorFlags{App: app}
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- WEFTD-FLAG…]",
		Short: "Look for faults of this host and on the way to each peer, with their causes and remedies",
		Long: "Look for faults of this host and on the way to each peer, with their causes and remedies. It " +
			"changes nothing, and takes ten\n" +
			"seconds at most. The settings are those of the running weftd. If none runs, they are the flags of " +
			"weftd that stand behind --,\n" +
			"and WEFTD_… and FLANNELD_… variables, else those of /etc/weft/weftd.env. Run it as root, on the host " +
			"or in weftd's pod.\n\n" +
			"Only what is not well is printed, the worst first; --all prints everything that was looked at, and " +
			"what could not be.\n\n" +
			"Exit status: 0 if no fault was found (there may be warnings), 1 for faults, 2 for wrong usage.",
		Example: "  weft doctor\n  weft doctor --all\n  weft doctor --json | jq '.findings[] | select(.verdict " +
			"== \"fault\")'\n  weft doctor --list\n" +
			"  weft doctor -- --iface eth1 --etcd-endpoints https://192.0.2.1:2379 --etcd-cafile /etc/weft/ca.pem",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeDaemonFlags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return cli.Usagef("%q is no argument of weft doctor: weftd's flags stand behind --", args[0])
			}
			if err := understood(args, os.Environ()); err != nil {
				return err
			}
			if f.list {
				return printChecks(cmd.OutOrStdout(), f.JSON)
			}
			facts := doctor.Gather(cmd.Context(), doctor.Request{Socket: f.Socket, Args: args,
				Environ: os.Environ(),
				Offline: f.offline})
			return f.print(cmd.OutOrStdout(), doctor.Examine(facts))
		},
	}
	f.Bind(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.list, "list", false, "list the checks and what each looks at, and do none of them")
	fs.BoolVar(&f.all, "all", false, "print also what is well, and what could not be looked at")
	fs.BoolVar(&f.offline, "offline", false, "do not ask the store")
	return cmd
}

// understood refuses flags of weftd that weftd would refuse.
func understood(args, environ []string) error {
	if len(args) == 0 {
		return nil
	}
	_, bad := options.Parse(args, environ)
	if errors.Is(bad, options.ErrHelp) {
		return cli.Usagef("weftd --help lists the flags that may stand behind --")
	}
	if _, without := options.Parse(nil, environ); bad == nil || without != nil {
		// a fault of the variables is one of this host's settings
		return nil
	}
	return cli.AsUsage(fmt.Errorf("behind --: %w", bad))
}

// print prints r. Its error is the exit status if there are faults.
func (f *doctorFlags) print(w io.Writer, r doctor.Report) error {
	if f.JSON {
		return status(cli.PrintJSON(w, r), r.Healthy)
	}
	return status(printReport(w, r, f.all), r.Healthy)
}

func printReport(w io.Writer, r doctor.Report, all bool) error {
	count := map[doctor.Verdict]int{}
	for _, x := range doctor.WorstFirst(r.Findings) {
		count[x.Verdict]++
		if !all && (x.Verdict == doctor.OK || x.Verdict == doctor.Unknown) {
			continue
		}
		text := x.Found
		if x.Subject != "" {
			text = x.Subject + ": " + text
		}
		fmt.Fprintf(w, "%-7s  %s: %s\n", x.Verdict, x.ID, cli.Clean(text))
		if x.Cause != "" {
			fmt.Fprintf(w, "         cause: %s\n", cli.Clean(x.Cause))
		}
		cli.PrintOpen(w, "         ", x.Open)
		if x.Ends() {
			fmt.Fprintf(w, "         remedy: %s\n", cli.Clean(x.Remedy))
		}
	}
	_, err := fmt.Fprintf(w,
		"faults: %d, warnings: %d, notes: %d, well: %d, not looked at: %d; settings of %s\n", count[doctor.Fault],
		count[doctor.Warning],
		count[doctor.Note], count[doctor.OK], count[doctor.Unknown], cli.Clean(r.Settings))
	if !all && err == nil && count[doctor.Unknown] > 0 {
		_, err = fmt.Fprintln(w, "weft doctor --all says what was not looked at, and why")
	}
	return err
}

func printChecks(w io.Writer, asJSON bool) error {
	var l struct {
		Checks []doctor.Check `json:"checks"`
	}
	l.Checks = doctor.Checks()
	if asJSON {
		return cli.PrintDocument(w, l)
	}
	t := cli.NewTable(w, "CHECK", "LOOKS AT")
	for _, c := range l.Checks {
		t.Row(c.ID, c.Looks)
	}
	return t.Flush()
}

// completeDaemonFlags lists weftd's flags, which stand behind --.
func completeDaemonFlags(_ *cobra.Command, _ []string, typed string) (out []string,
	_ cobra.ShellCompDirective) {
	if !strings.HasPrefix(typed, "-") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cfg, _ := options.Parse(nil, nil) // for the names of the flags
	for _, s := range cfg.Settings {
		out = append(out, "--"+s.Name+"=")
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

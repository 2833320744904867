package manage

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func reloadCommand(f *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have weftd take up changed settings, certificates and network configuration",
		Long: "Have weftd take up changed settings, certificates and network configuration, as SIGHUP does, " +
			"without a restart. It reads again the file\n" +
			"of --environment-file, the certificates, keys, password and kubeconfig by which it reaches the store " +
			"or the API server, and\n" +
			"the network configuration. The answer says what is in force now, what takes a restart, and what cannot " +
			"be used, in which case what was\n" +
			"good stays. Packets flow meanwhile, but for the moment in which another network configuration takes " +
			"the place of the one in use.\n\n" +
			"Exit status: 0 if all that has changed is in force, 1 if something takes a restart or cannot be used, " +
			"2 for wrong usage.",
		Example: "  weft reload\n  weft reload --json | jq -r '.restart[].key'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.Client().Reload(cmd.Context())
			if err != nil {
				return err
			}
			err = f.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return printReloaded(w, r) })
			if err == nil && !r.Complete() {
				return cli.ExitFailure
			}
			return err
		},
	}
	f.Bind(cmd)
	return cmd
}

// printReloaded prints a line for each thing, which begins with what became of it.
func printReloaded(w io.Writer, r control.Reloaded) error {
	t := cli.NewTable(w)
	for _, c := range r.Changed {
		text := c.Text()
		if c.Detail != "" {
			text = c.Key + ": " + c.Detail
		}
		t.Row("changed", text)
	}
	for _, c := range r.Restart {
		t.Row("not yet", c.Text()+": "+c.Detail)
	}
	for _, fault := range r.Faults {
		t.Row("fault", fault)
	}
	if len(r.Changed)+len(r.Restart)+len(r.Faults) == 0 {
		t.Row("unchanged", "nothing has changed")
	}
	for _, n := range r.Notes {
		t.Row("note", n)
	}
	if r.Revision != 0 {
		t.Row("read", fmt.Sprintf("the store, at revision %d", r.Revision))
	}
	return t.Flush()
}

package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func LeaseList(f *cli.LeaseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list [NODE…]",
		Short: "List every record in the store, also those that are not believed",
		Long: "List every record in the store, also those that are not believed, or those of the " +
			"nodes that are named.\n\n" + cli.NodeArgument,
		Example: "  weft lease list\n  weft lease list db1\n  weft lease list --json --etcd-endpoints " +
			"https://192.0.2.5:2379",
		ValidArgsFunction: f.CompleteOwners,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.Ask(cmd, true, func(api cli.LeaseAPI) error {
				l, err := api.Leases(cmd.Context())
				if err == nil {
					l, err = cli.OnlyLeases(l, args)
				}
				if err != nil {
					return err
				}
				return f.Print(cmd.OutOrStdout(), l, func(w io.Writer) error { return printLeases(w, l, time.Now()) })
			})
		},
	}
}

func printLeases(w io.Writer, l control.Leases, now time.Time) error {
	if l.Network != "" {
		fmt.Fprintf(w, "network %s, %s, read from %s\n\n", cli.Clean(l.Network),
			cli.Count(len(l.Leases), "record"), cli.Clean(l.Source))
	}
	// In Kubernetes a record has neither an end nor a revision of its own.
	lives := len(l.Leases) == 0 || slices.ContainsFunc(l.Leases, func(r control.Record) bool {
		return r.Revision != 0 || !r.Expires.IsZero()
	})
	t := cli.NewTable(w, "SUBNET", "NODE", "ID", "PUBLIC IP", "BACKEND", "")
	if lives {
		t = cli.NewTable(w, "SUBNET", "NODE", "ID", "PUBLIC IP", "BACKEND", "ENDS IN", "REVISION", "")
	}
	for _, r := range l.Leases {
		name := cmp.Or(r.Name, r.Node)
		cells := []any{cli.Join(r.Subnet, r.IPv6Subnet), cli.OrDash(name), cli.ShortID(name, r.Node),
			cli.Join(r.PublicIP, r.PublicIPv6), cli.OrDash(r.Backend)}
		if lives {
			cells = append(cells, ends(r.Expires, r.Reservation, now), r.Revision)
		}
		whose := ""
		if r.Own {
			whose = "this node"
		}
		t.Row(append(cells, whose)...)
	}
	t.WithoutEmpty("ID")
	if err := t.Flush(); err != nil {
		return err
	}
	t = cli.NewList(w, "NOT BELIEVED", "REASON", "DETAIL")
	for _, r := range l.Rejected {
		t.Row(r.Key, r.Reason, cli.OrDash(r.Detail))
	}
	return t.Flush()
}

// ends says when a lease ends.
func ends(expires time.Time, reservation bool, now time.Time) string {
	switch {
	case reservation:
		return "reserved"
	case expires.IsZero():
		return "-"
	case expires.Before(now):
		return "ended " + cli.Ago(expires, now)
	}
	return cli.Span(expires.Sub(now))
}

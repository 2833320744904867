package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
)

// leasesDocument is what weft lease list --json prints.
type leasesDocument struct {
	schema
	control.Leases
}

func leaseListCommand(f *leaseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list [NODE…]",
		Short: "List every record in the store, also those that are not believed",
		Long: "List every record in the store, also those that are not believed, or those of the " +
			"nodes that are named.\n\n" + nodeArgument,
		Example: "  weft lease list\n  weft lease list db1\n  weft lease list --json --etcd-endpoints " +
			"https://192.0.2.5:2379",
		ValidArgsFunction: f.completeOwners,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd, true, func(api leaseAPI) error {
				l, err := api.Leases(cmd.Context())
				if err == nil {
					l, err = onlyLeases(l, args)
				}
				if err != nil {
					return err
				}
				if f.json {
					return printJSON(cmd.OutOrStdout(), leasesDocument{schema1(), l})
				}
				return printLeases(cmd.OutOrStdout(), l, time.Now())
			})
		},
	}
}

func printLeases(w io.Writer, l control.Leases, now time.Time) error {
	if l.Network != "" {
		fmt.Fprintf(w, "network %s, %s, read from %s\n\n", clean(l.Network), count(len(l.Leases), "record"),
			clean(l.Source))
	}
	// In Kubernetes a record has neither an end nor a revision of its own.
	lives := len(l.Leases) == 0 || slices.ContainsFunc(l.Leases, func(r control.Record) bool {
		return r.Revision != 0 || !r.Expires.IsZero()
	})
	id := idColumn(l.Leases, func(r control.Record) (string, string) { return cmp.Or(r.Name, r.Node), r.Node })
	head := "SUBNET\tNODE\t" + id.heading + "PUBLIC IP\tBACKEND\t"
	if lives {
		head += "ENDS IN\tREVISION\t"
	}
	t := newTable(w)
	fmt.Fprintln(t, head)
	for _, r := range l.Leases {
		name := cmp.Or(r.Name, r.Node)
		fmt.Fprintf(t, "%s\t%s\t%s%s\t%s\t", join(r.Subnet, r.IPv6Subnet), orDash(name), id.cell(name, r.Node),
			join(r.PublicIP, r.PublicIPv6), orDash(r.Backend))
		if lives {
			fmt.Fprintf(t, "%s\t%d\t", ends(r.Expires, r.Reservation, now), r.Revision)
		}
		if r.Own {
			fmt.Fprint(t, "this node")
		}
		fmt.Fprintln(t)
	}
	if len(l.Rejected) > 0 {
		fmt.Fprintf(t, "\nNOT BELIEVED\tREASON\tDETAIL\n")
		for _, r := range l.Rejected {
			fmt.Fprintf(t, "%s\t%s\t%s\n", clean(r.Key), clean(string(r.Reason)), orDash(r.Detail))
		}
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
		return "ended " + ago(expires, now)
	}
	return duration(expires.Sub(now))
}

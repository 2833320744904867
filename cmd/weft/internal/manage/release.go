package manage

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/lease"
)

func LeaseRelease(f *cli.LeaseFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release SUBNET|NODE",
		Short: "Delete one record, so that another node may have the subnet",
		Long: "Delete one record, so that another node may have the subnet. The record is deleted only if it is " +
			"still\n" +
			"the one that was read. The subnet of the running daemon itself is deleted only with --force.\n\n" +
			"The record is that of the subnet, or of the one node with that name, id or address.",
		Example:           "  weft lease release 10.42.7.0/24\n  weft lease release db1",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.CompleteOwners,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "/") || subnetWord(args[0]) {
				if err := checkSubnet(args[0]); err != nil {
					return cli.AsUsage(err)
				}
			}
			return f.Ask(cmd, false, func(api cli.LeaseAPI) error {
				subnet, err := recordOf(cmd.Context(), api, args[0])
				if err != nil {
					return err
				}
				d, err := api.Release(cmd.Context(), control.ReleaseRequest{Subnet: subnet, Force: force})
				if err != nil {
					return err
				}
				if f.JSON {
					return cli.PrintDocument(cmd.OutOrStdout(), d)
				}
				r := d.Record
				fmt.Fprintf(cmd.OutOrStdout(), "released %s: it was held by %s at %s, backend %s, %s\n",
					cli.Join(r.Subnet, r.IPv6Subnet),
					owner(r), cli.Join(r.PublicIP, r.PublicIPv6), cli.OrDash(r.Backend),
					remaining(r, time.Now()))
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also delete the record of this very node while it runs")
	return cmd
}

func owner(r control.Record) string {
	if r.Node == "" && r.Name == "" {
		return "a node without identity (flannel's)"
	}
	return "node " + cli.Clean(cli.NodeText(r.Name, r.Node))
}

func remaining(r control.Record, now time.Time) string {
	switch {
	case r.Reservation:
		return "reserved without an end"
	case r.Expires.IsZero():
		return "its end is not known"
	}
	return cli.Span(r.Expires.Sub(now)) + " were left"
}

// checkSubnet explains what is wrong with the argument, before the daemon or the store is asked.
func checkSubnet(text string) error {
	if p, err := netip.ParsePrefix(text); err == nil && p != p.Masked() {
		return fmt.Errorf("%s is an address in a subnet: did you mean %s?", p, p.Masked())
	}
	if _, err := lease.ParseSubnets(text); err != nil {
		return fmt.Errorf("%w: want a subnet as weft lease list shows it, such as 10.1.2.0/24", err)
	}
	return nil
}

// subnetWord reports whether text is a subnet, in any way in which one is written.
func subnetWord(text string) bool {
	_, err := lease.ParseSubnets(text)
	return err == nil
}

// recordOf returns the subnet of the record that word names.
func recordOf(ctx context.Context, api cli.LeaseAPI, word string) (string, error) {
	if subnetWord(word) {
		return word, nil
	}
	l, err := api.Leases(ctx)
	if err == nil {
		l, err = cli.OnlyLeases(l, []string{word})
	}
	if err != nil {
		return "", err
	}
	return lease.Subnets{V4: l.Leases[0].Subnet, V6: l.Leases[0].IPv6Subnet}.String(), nil
}

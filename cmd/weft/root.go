package main

import (
	"github.com/spf13/cobra"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/weft/internal/benchcmd"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/diag"
	"weft/cmd/weft/internal/labcmd"
	"weft/cmd/weft/internal/manage"
	"weft/cmd/weft/internal/pods"
	"weft/cmd/weft/internal/show"
)

func rootCommand(app *cli.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "weft",
		Short: "Look at and look after the overlay network that weftd carries",
		Long: "Look at and look after the overlay network that weftd carries.\n\n" +
			"Exit status: 0, or 1 for a failure, 2 for a command line that is not understood, 3 from weft status " +
			"for a node\n" +
			"that is not ready; from weft lab exec it is the command's.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.Flags().BoolP("version", "v", false, "version for weft")
	root.AddCommand(show.Commands(app)...)
	root.AddCommand(diag.Commands(app)...)
	root.AddCommand(manage.Commands(app)...)
	root.AddCommand(pods.Commands(app)...)
	root.AddCommand(leaseCommand(app), labcmd.Command(), benchcmd.Command(app), versionCommand(app))
	return root
}

func versionCommand(app *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version",
		Example: "  weft version\n  weft version --json | jq -r .version", Args: cobra.NoArgs,
		Long: "Print the version of this program. That of the running weftd, which may be another, is in weft " +
			"status.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return buildinfo.Print(cmd.OutOrStdout(), "weft", app.Version, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, whose fields are stable")
	return cmd
}

func leaseCommand(app *cli.App) *cobra.Command {
	f := cli.NewLeaseFlags(app)
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "List or release the subnets that nodes hold",
		Long: "List or release the subnets that nodes hold.\n\n" +
			"The daemon is asked over its control socket. If none answers (for list also one that is stopped), or " +
			"an --etcd-… flag is given,\n" +
			"the store is asked: that of a weftd which is stopped, else that of those flags, which may come from " +
			"WEFTD_… and FLANNELD_… variables, as\n" +
			"for weftd, else that of /etc/weft/weftd.env.\n" +
			"In Kubernetes only the daemon is asked: subnets are the podCIDRs of Node objects, which kubectl shows.",
	}
	f.BindStore(cmd)
	cmd.AddCommand(show.LeaseList(f), manage.LeaseRelease(f))
	return cmd
}

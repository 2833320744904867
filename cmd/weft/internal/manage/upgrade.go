package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func upgradeCommand(c *cli.App) *cobra.Command {
	var binary string
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Have the running weftd execute a new program, without a packet lost",
		Long: "Have the running weftd execute a new program, without a packet lost. weftd asks the program for " +
			"its version and\n" +
			"whether it takes weftd's flags and environment. Then it executes the program with them in the same " +
			"process.\n" +
			"What it has open stays open, and packets wait in queues. If the program fails before it reads\n" +
			"packets, the one before is executed again, and the exit status is 1.\n\n" +
			"Without --binary it is the program that is now at the path from which weftd was started. Only root and " +
			"weftd's own user may be able\n" +
			"to write the file, and its directory.\n\n" +
			"Where weftd encrypts in user space (type wireguard), sessions with all peers begin anew.",
		Example: "  install -m 755 weftd /usr/local/bin/weftd && weft upgrade\n  weft upgrade --binary " +
			"/opt/weft-1.2/weftd\n  weft upgrade --json | jq .pause_us",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUpgrade(cmd.Context(), cmd.OutOrStdout(), c, binary)
		},
	}
	c.Bind(cmd)
	cmd.Flags().StringVar(&binary, "binary", "",
		"`file` of the new weftd; empty is the one at the path from which the running one was started")
	return cmd
}

func runUpgrade(ctx context.Context, w io.Writer, c *cli.App, binary string) error {
	if binary != "" {
		path, err := filepath.Abs(binary)
		if err != nil {
			return cli.Usagef("--binary %s: %w", binary, err)
		}
		binary = path
	}
	done, err := c.Client().Upgrade(ctx, control.UpgradeRequest{Binary: binary})
	if errors.Is(err, control.ErrUnknown) {
		return fmt.Errorf("the weftd that runs is older than this command: systemctl restart weftd " +
			"(docs/operations.md)")
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.PrintDocument(w, done)
	}
	fmt.Fprintf(w, "weftd %s is now %s, in the same process (pid %d), which runs %s\n", done.FromVersion,
		done.ToVersion, done.PID, cli.Clean(done.Binary))
	fmt.Fprintf(w, "packets waited for %s in queues, and none was lost by it; it took %s in all\n",
		(time.Duration(done.Pause) * time.Microsecond).Round(10*time.Microsecond),
		time.Duration(done.Took)*time.Millisecond)
	return nil
}

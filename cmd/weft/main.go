// Command weft is the operator's tool: it asks a running weftd over its control
// socket, or the store itself when no daemon answers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/weft/internal/cli"
)

// version is set by the linker (-X main.version=…).
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if status := cli.ExitStatus(0); errors.As(err, &status) {
		os.Exit(int(status)) // of a command that weft ran, or of weft status, which have printed everything
	}
	switch {
	case errors.Is(err, cli.ErrUsage):
		fmt.Fprintln(os.Stderr, "weft:", err)
		os.Exit(int(cli.ExitUsage))
	case err != nil:
		fmt.Fprintln(os.Stderr, "weft:", err)
		os.Exit(int(cli.ExitFailure))
	}
}

// run is the whole command. Results go to stdout, remarks to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := rootCommand(cli.NewApp(versionText()))
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cli.Complete(root)
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if asked, err := cmd.Flags().GetBool("version"); err != nil || !asked {
			return errors.Join(err, help(cmd, args))
		}
		return buildinfo.Print(cmd.OutOrStdout(), "weft", versionText(), false)
	}
	cmd, err := root.ExecuteContextC(ctx)
	return cli.WithUsage(cmd, err)
}

func versionText() string { return buildinfo.Version(version) }

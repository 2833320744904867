package diag

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/bugreport"
	"weft/cmd/weft/internal/cli"
)

func reportCommand(c *cli.App) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "report",
		Short: "Write one archive for a bug report: status, peers, events, metrics, routes, rules, logs, without " +
			"secrets",
		Long: "Write one archive for a bug report: what weft status, peers, lease list, doctor and events say, " +
			"metrics, settings, links, addresses,\n" +
			"routes, all rules of the firewall, sockets, the kernel and the end of the log. It works without a " +
			"running weftd too, and changes nothing.\n\n" +
			"Passwords, tokens, private keys, commands of type extension, variables that are not weft's and what " +
			"stands before the @ of a URL\n" +
			"are struck out. Addresses and names of hosts are not: look at the archive before you publish it. Only " +
			"its owner can read it. What is\n" +
			"in it is listed, here and in its manifest.json; what cannot be had is named there, and ends nothing.",
		Example: "  weft report\n  weft report --output /tmp/weft.tar.gz\n  weft report --output - | ssh " +
			"admin@example.org 'cat > weft.tar.gz'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeReport(cmd.Context(), c, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.Bind(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "",
		"`file` to write, which must not be there yet; - is the standard output (default: "+
			"weft-report-HOST-TIME.tar.gz here)")
	return cmd
}

// writeReport writes the archive, and then lists what is in it.
func writeReport(ctx context.Context, c *cli.App, output string, stdout, stderr io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("which program this is: %w", err)
	}
	host, _ := os.Hostname() // without it the name of the file is shorter
	r := bugreport.Request{
		Weft: self, Socket: c.Socket, Version: c.Version,
		Name: "weft-report-" + cli.Clean(filepath.Base(host)) + "-" +
			time.Now().UTC().Format("20060102T150405Z"),
	}
	r.CacheDir, r.Process = c.StateDir(ctx)
	if output == "-" {
		m, err := bugreport.Write(ctx, r, stdout)
		if err != nil {
			return err
		}
		return printManifest(stderr, c, output, m)
	}
	output = cmp.Or(output, r.Name+".tar.gz")
	f, err := os.OpenFile(output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	m, err := bugreport.Write(ctx, r, f)
	if err = cmp.Or(err, f.Close(), ctx.Err()); err != nil { // what went wrong first is what counts
		_ = os.Remove(output)
		return err
	}
	return printManifest(stdout, c, output, m)
}

func printManifest(w io.Writer, c *cli.App, file string, m bugreport.Manifest) error {
	if c.JSON {
		return cli.PrintJSON(w, struct {
			File string `json:"file"`
			bugreport.Manifest
		}{file, m})
	}
	fmt.Fprintf(w, "%s has:\n", cli.Clean(file))
	t := cli.NewTable(w)
	for _, p := range m.Parts {
		what := p.What
		if p.Error != "" {
			what += " (NOT COMPLETE: " + p.Error + ")"
		}
		t.Row(p.Name, cli.Size(uint64(max(0, p.Bytes))), what)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nPasswords, tokens and keys are struck out; addresses and names of hosts are "+
		"not.")
	return err
}

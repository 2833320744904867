package show

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/podport"
	"weft/cmd/weft/internal/cli"
)

func podsCommand(c *cli.App) *cobra.Command {
	var live watchFlags
	cmd := &cobra.Command{
		Use: "pods",
		Short: "Show the pods that are attached directly: their addresses, what passed, what was refused and " +
			"what is wrong",
		Long: "Show the pods of this node that are attached directly, by weft attach or by weft-cni with " +
			"\"attach\":\"direct\": their addresses, what\n" +
			"passed since they were attached, what was refused, and what is wrong with the remedy. Pods on a bridge " +
			"are not weftd's, and not shown.\n\n" +
			"With --watch it is shown again and again; with --json that is a document a line.",
		Example: "  weft pods\n  weft pods --watch\n  weft pods --json | jq -r '.pods[] | select(.state != " +
			"\"attached\") | .name'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := live.check(cmd); err != nil {
				return err
			}
			if live.on {
				return watchPods(cmd.Context(), c, cmd.OutOrStdout(), live.every)
			}
			p, err := podport.Client{Socket: c.Socket}.Pods(cmd.Context())
			if err != nil {
				return err
			}
			return c.Print(cmd.OutOrStdout(), p, func(w io.Writer) error { return printPods(w, p, time.Now()) })
		},
	}
	c.Bind(cmd)
	live.bind(cmd)
	return cmd
}

func printPods(w io.Writer, p podport.Pods, now time.Time) error {
	if len(p.Pods) == 0 {
		fmt.Fprintln(w, "no pods are attached directly (weft attach --help)")
		if !p.Node.Attaches && p.Node.Why != "" {
			fmt.Fprintf(w, "none can be: %s\n", cli.Clean(p.Node.Why))
		}
		return nil
	}
	t := cli.NewTable(w, "POD", "INTERFACE", "ADDRESSES", "STATE", "MTU", "SENT", "RECEIVED", "LAST SEEN",
		"REFUSED", "BY")
	for _, e := range p.Pods {
		t.Row(cli.OrDash(cmp.Or(e.Name, e.ID)), e.Interface, cli.Join(e.Addresses...), e.State, e.MTU,
			cli.Packets(e.SentPackets, e.SentBytes), cli.Packets(e.ReceivedPackets, e.ReceivedBytes),
			seen(e.LastSeen, now), cli.Total(e.Drops), cli.OrDash(e.By))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	heading := "\n"
	for _, e := range p.Pods {
		if e.Problem != "" {
			fmt.Fprintf(w, "%s%s: %s\n", heading, cli.Clean(cmp.Or(e.Name, e.ID)), cli.Clean(e.Problem))
			heading = ""
		}
	}
	t = cli.NewList(w, "REFUSED OF", "REASON", "PACKETS", "WOULD BE ADMITTED BY")
	for _, e := range p.Pods {
		for _, d := range e.Drops {
			t.Row(cmp.Or(e.Name, e.ID), d.Reason, d.Packets, cli.OrDash(d.Admit))
		}
	}
	return t.Flush()
}

// seen says when somebody was last heard of. Nothing is known of the time before weftd started.
func seen(last, now time.Time) string {
	if last.IsZero() {
		return "not yet"
	}
	return cli.Ago(last, now)
}

// watchPods is weft pods --watch.
func watchPods(ctx context.Context, c *cli.App, stdout io.Writer, every time.Duration) error {
	var last podport.Pods
	port := podport.Client{Socket: c.Socket}
	w := cli.Watch{Every: every, Stdout: stdout}
	w.Ask = func(ctx context.Context) (func(), error) {
		p, err := port.Pods(ctx)
		return func() { last = p }, err
	}
	w.Draw = func(width, height int) []cli.Line {
		l := cli.LinesOf(width, func(w io.Writer) error { return printPods(w, last, time.Now()) })
		if height > 0 {
			l = l[:min(len(l), height)]
		}
		return l
	}
	if c.JSON {
		w.Print = func(out io.Writer) error { return cli.PrintLine(out, last) }
	}
	return w.Run(ctx)
}

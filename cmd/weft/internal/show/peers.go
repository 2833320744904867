package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/top"
)

func peersCommand(c *cli.App) *cobra.Command {
	var live watchFlags
	cmd := &cobra.Command{
		Use:   "peers [NODE…]",
		Short: "Show every other node: where it is, what passed, what was refused and what would admit it",
		Long: "Show every other node, or those that are named: where it is, what passed, what was refused and " +
			"what would admit it.\n\n" +
			"With --watch it is what passes and answers now, as in weft top, and as many columns as fit. With " +
			"--json that is a document a line.\n\n" +
			cli.NodeArgument,
		Example: "  weft peers\n  weft peers db1\n  weft peers 192.0.2.7 10.42.3.0/24\n  weft peers --watch",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := live.check(cmd); err != nil {
				return err
			}
			if live.on {
				return watchPeers(cmd.Context(), c, cmd.OutOrStdout(), live.every, args)
			}
			p, err := c.Client().Peers(cmd.Context())
			if err != nil {
				return err
			}
			st, err := c.Client().Status(cmd.Context())
			if err != nil {
				return err
			}
			diagnose.Peers(st, &p)
			if p, err = cli.OnlyPeers(p, args); err != nil {
				return err
			}
			return c.Print(cmd.OutOrStdout(), p, func(w io.Writer) error { return printPeers(w, st, p, time.Now()) })
		},
	}
	c.Bind(cmd)
	live.bind(cmd)
	cmd.ValidArgsFunction = c.CompletePeers
	return cmd
}

func printPeers(w io.Writer, st control.Status, p control.Peers, now time.Time) error {
	if len(p.Peers) == 0 {
		fmt.Fprintln(w, "no peers: no other node has a lease that is believed (see weft lease list)")
	} else {
		t := cli.NewTable(w, "PEER", "ID", "SUBNETS", "ADDRESS", "PATH", "MTU", "SENT", "RECEIVED",
			"LAST SEEN", "REFUSED", "ANSWERS", "RTT", "LOSS OUT/IN", "PASSES", "TAKES")
		for _, e := range p.Peers {
			cells := []any{cli.OrDash(e.Name), cli.ShortID(e.Name, e.NodeID), cli.Join(e.Subnets...),
				cli.Join(e.Address), cli.OrDash(path(e)), mtu(e)}
			t.Row(append(slices.Concat(cells, traffic(e, now), probes(e, now)), takes(e))...)
		}
		t.WithoutEmpty("ID")
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if err := printFindings(w, st, p, now); err != nil {
		return err
	}
	if err := printEncryption(w, p, now); err != nil {
		return err
	}
	if err := printReached(w, p); err != nil {
		return err
	}
	return printRefused(w, p, now)
}

// traffic returns what was sent, received, last seen and refused. It returns dashes if the kernel moves the
// packets, since that counts for devices and not for peers.
func traffic(p control.Peer, now time.Time) []any {
	if p.Traffic == nil {
		return []any{"-", "-", "-", "-"}
	}
	return []any{cli.Packets(p.TxPackets, p.TxBytes), cli.Packets(p.RxPackets, p.RxBytes), seen(lastSeen(p), now),
		cli.Total(p.Drops)}
}

// lastSeen is when the peer was last heard of: by a packet of its, or by an answer to a probe.
func lastSeen(p control.Peer) time.Time {
	last := p.LastSeen
	for _, q := range p.Probes {
		if q.LastAnswer.After(last) {
			last = q.LastAnswer
		}
	}
	return last
}

// takes returns the forms of datagrams that the peer takes: from a flannel node only flannel's own, from a
// weft node also those in its record.
func takes(p control.Peer) string {
	switch {
	case !p.Weft:
		return "flannel: plain"
	case len(p.Recv) == 0:
		return "weft: plain"
	}
	return "weft: " + strings.Join(p.Recv, ",")
}

// path returns the path to the peer and, if the kernel moves the packets, how it reaches the peer: "kernel
// route, tunnel".
func path(p control.Peer) string {
	var how []string
	for _, y := range p.Reached {
		if !slices.Contains(how, y.How) {
			how = append(how, y.How)
		}
	}
	if len(how) == 0 || len(how) == 1 && how[0] == p.Path {
		return p.Path
	}
	return strings.TrimSpace(p.Path + " " + strings.Join(how, ", "))
}

// printReached lists the subnets that are not reached, or not as they could best be, with the reason.
func printReached(w io.Writer, p control.Peers) error {
	t := cli.NewList(w, "SUBNET", "OF", "WAY", "BECAUSE")
	for _, e := range p.Peers {
		for _, y := range e.Reached {
			if y.Reason != "" {
				t.Row(y.Subnet, cli.OrDash(e.Name), y.How, y.Reason)
			}
		}
	}
	return t.Flush()
}

// mtu returns the inner MTU, and the path MTU if one was learnt.
func mtu(p control.Peer) string {
	switch {
	case p.MTU == 0:
		return "-"
	case p.PathMTU > 0:
		return fmt.Sprintf("%d (path %d)", p.MTU, p.PathMTU)
	}
	return fmt.Sprint(p.MTU)
}

// printRefused lists the packets of peers and strangers that were dropped, with the remedy.
func printRefused(w io.Writer, p control.Peers, now time.Time) error {
	t := cli.NewList(w, "REFUSED FROM", "REASON", "PACKETS", "WOULD BE ADMITTED BY")
	for _, e := range p.Peers {
		for _, d := range e.Drops {
			t.Row(e.Name, d.Reason, d.Packets, cli.OrDash(d.Admit))
		}
	}
	for _, s := range p.Strangers {
		t.Row(fmt.Sprintf("%s (%s)", s.Address, cli.Ago(s.LastSeen, now)), "unknown_peer", s.Packets,
			cli.OrDash(s.Admit))
	}
	return t.Flush()
}

// printEncryption lists what the devices of WireGuard know of each peer, and below why one is not heard.
func printEncryption(w io.Writer, p control.Peers, now time.Time) error {
	t := cli.NewList(w, "ENCRYPTED TO", "DEVICE", "ENDPOINT", "LATEST HANDSHAKE", "SENT", "RECEIVED",
		"PUBLIC KEY")
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			t.Row(cli.OrDash(e.Name), x.Device, x.Endpoint, cli.Ago(x.Handshake, now), cli.Size(x.TxBytes),
				cli.Size(x.RxBytes), x.PublicKey)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, e := range p.Peers {
		for _, x := range e.Encryption {
			if x.Likely != "" {
				fmt.Fprintf(w, "\n%s: %s: %s\n", cli.OrDash(e.Name), cli.Clean(x.Likely), cli.Clean(x.Look))
			}
		}
	}
	return nil
}

// probes returns whether a peer answers and since when, the round trip, the loss to it and from it, and the
// largest inner packet that passed.
func probes(p control.Peer, now time.Time) []any {
	words := []any{"-", "-", "-", "-"}
	if len(p.Probes) == 0 {
		return words
	}
	q := top.Worst(p.Probes)
	words[0] = q.Answers
	if q.Answers != "unknown" {
		words[0] = q.Answers + " " + cli.Span(now.Sub(q.Since))
	}
	if q.Answers == "yes" {
		if q.RTT > 0 {
			words[1] = cli.Milliseconds(q.RTT)
		}
		words[2] = cli.Losses(q.Loss, q.LossOut, q.LossIn)
	}
	words[3] = cli.Passes(q.PathMTU, q.LargeLost)
	return words
}

// unreachableFor is how long a message of ICMP is shown as what is so.
const unreachableFor = 5 * time.Minute

// printFindings says of each peer what is wrong with the way to it: as the probes show it, and as ICMP has
// lately said.
func printFindings(w io.Writer, st control.Status, p control.Peers, now time.Time) error {
	for _, e := range p.Peers {
		said := "" // by the probes already
		for _, q := range e.Probes {
			if f, bad := diagnose.Probe(st, e, q, diagnose.Neighbour{}); bad {
				said = f.Fact
				subject := fmt.Sprintf("%s (%v)", cli.OrDash(e.Name), q.Address)
				if err := cli.PrintFinding(w, subject, f); err != nil {
					return err
				}
			}
		}
		u := e.Unreachable
		f, bad := diagnose.Unreachable(st, e)
		if !bad || f.Fact == said || now.Sub(u.Last) > unreachableFor {
			continue
		}
		f.Fact = fmt.Sprintf("%s, of what is sent to it; the last time %s, %d in all", f.Fact,
			cli.Ago(u.Last, now), u.Count)
		if err := cli.PrintFinding(w, fmt.Sprintf("%s (%v)", cli.OrDash(e.Name), e.Address), f); err != nil {
			return err
		}
	}
	return nil
}

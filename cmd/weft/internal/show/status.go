package show

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/routing"
)

// statusDocument is what weft status --json prints.
type statusDocument struct {
	cli.Schema
	control.Status
}

func statusCommand(c *cli.App) *cobra.Command {
	var live watchFlags
	var wait string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's lease, backend, store and counters",
		Long: "Show the daemon's lease, backend, store and counters.\n\n" +
			"With --wait it waits until the node is ready, or with --wait=peers until also a peer has answered, and " +
			"for a weftd that does not run yet.\n\n" +
			"Exit status: 0 if the node is ready, 3 if it is not, 1 if weftd could not be asked, 2 for wrong usage. " +
			"With --wait it is 1 when\n" +
			"the time is over.",
		Example: "  weft status\n  weft status --wait && start-pods\n  weft status --wait=peers --timeout 2m\n  " +
			"weft status --watch --interval 5s\n  weft status --json | jq .notReady",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && wait == waitReady {
				return cli.Usagef("%q is no argument of weft status: what to wait for stands behind =, as in --wait=%s, "+
					"and how long is --timeout", args[0], waitPeers)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s control.Status
			var err error
			if err := live.check(cmd); err != nil {
				return err
			}
			switch {
			case live.on && wait != "":
				return cli.Usagef("--wait and --watch: one of them only")
			case live.on && !cmd.Flags().Changed("timeout"):
				return watchStatus(cmd.Context(), c, cmd.OutOrStdout(), live.every)
			case wait == "" && cmd.Flags().Changed("timeout"):
				return cli.Usagef("--timeout goes with --wait")
			case wait == "":
				if s, err = c.Client().Status(cmd.Context()); err != nil {
					return err
				}
			case wait != waitReady && wait != waitPeers:
				return cli.Usagef("--wait=%s: want %s or %s", wait, waitReady, waitPeers)
			case limit <= 0:
				return cli.Usagef("--timeout %s: want more than 0", limit)
			default:
				var known bool
				if s, known, err = waitFor(cmd.Context(), c, wait, limit); err != nil {
					if known && c.JSON {
						err = errors.Join(cli.PrintJSON(cmd.OutOrStdout(), statusDocument{cli.Schema1(), s}), err)
					}
					return err
				}
			}
			if c.JSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), statusDocument{cli.Schema1(), s})
			} else {
				err = printStatus(cmd.OutOrStdout(), s, time.Now())
			}
			if err == nil && !s.Ready {
				return cli.ExitStatus(cli.ExitNotReady)
			}
			return err
		},
	}
	c.Bind(cmd)
	live.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&wait, "wait", "", "wait until the node is `ready`, or until one of its peers has answered too")
	f.Lookup("wait").NoOptDefVal = waitReady
	f.DurationVar(&limit, "timeout", time.Minute, "how `long` --wait waits")
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{waitReady, waitPeers}, cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc("wait", complete); err != nil {
		cmd.Long += "\n" + err.Error() // the flag is defined above
	}
	return cmd
}

func printStatus(w io.Writer, s control.Status, now time.Time) error {
	if err := printState(w, s, now); err != nil {
		return err
	}
	if routing.CarriesNothing(s.Backend.Path) {
		return printDevices(w, s.Counters.Devices)
	}
	return printCounters(w, s.Counters)
}

// printState prints what is so, without what was counted.
func printState(w io.Writer, s control.Status, now time.Time) error {
	t := cli.NewTable(w)
	row := func(name, format string, a ...any) { t.Row(name, fmt.Sprintf(format, a...)) }
	row("weftd", "%s, pid %d, up %s", s.Version, s.PID, cli.Span(time.Duration(s.Uptime)*time.Second))
	row("node", "%s", cli.NodeText(s.Name, s.NodeID))
	row("ready", "%s", cli.YesNo(s.Ready))
	for _, r := range s.NotReady {
		row("", "%s", r)
	}
	for _, n := range s.Notes {
		row("note", "%s", n)
	}
	if s.Alarm != "" {
		row("ALARM", "%s", s.Alarm)
	}
	if n := s.Namespace; n != nil {
		row("namespace", "%s", namespaceLine(*n))
		if n.Out != nil {
			row("elsewhere", "%s", wayOutLine(*n.Out))
		}
	}
	configRows(row, s)
	row("lease", "%s", leaseLine(s, now))
	row("backend", "%s", backendLine(s.Backend))
	for _, n := range s.Backend.Notes {
		row("", "%s", n)
	}
	if s.Backend.Error != "" {
		row("", "last reconcile: %s", s.Backend.Error)
	}
	controllerRows(row, s.Controller, now)
	row("underlay", "%s", underlayLine(s.Underlay))
	if f := s.Underlay.Forwarding; f != "" {
		row("", "rx-udp-gro-forwarding %s", f)
	}
	for _, line := range deviceLines(s) {
		row("", "%s", line)
	}
	rulesRows(row, s.Rules)
	custodyRows(row, s.Custody)
	row(storeRow(s.Store), "%s", storeLine(s.Store, now))
	row("cache", "%s", cacheLine(s.Cache, now))
	row("peers", "%s", peersLine(s))
	podRows(row, s.Pods)
	return t.Flush()
}

// namespaceLine says where the TUN is, and how programs get there.
func namespaceLine(n control.Namespace) string {
	s := "of process " + fmt.Sprint(n.PID)
	if n.PID == 0 {
		s = n.Path
	}
	if n.Own {
		s = "made by weftd, kept by process " + fmt.Sprint(n.PID)
	}
	if n.Rootless {
		s += ", without root"
	}
	if n.Enter != "" {
		s += ": " + n.Enter + " COMMAND"
	}
	return s
}

// wayOutLine says where packets to neither pods nor peers go.
func wayOutLine(o control.WayOut) string {
	const none = "the namespace has no default route, which slirp4netns or pasta give it"
	var s string
	switch {
	case o.IPv4 == "" && o.IPv6 == "":
		return "nowhere: " + none
	case o.IPv6 == "":
		s = "IPv4 by " + o.IPv4 + ", IPv6 nowhere"
	case o.IPv4 == "":
		s = "IPv6 by " + o.IPv6 + ", IPv4 nowhere"
	case o.IPv4 == o.IPv6:
		s = "by " + o.IPv4
	default:
		s = "IPv4 by " + o.IPv4 + ", IPv6 by " + o.IPv6
	}
	if !o.Masquerade {
		s += "; what pods send there gets no answer through slirp4netns or pasta without --ip-masq"
	}
	return s
}

func leaseLine(status control.Status, now time.Time) string {
	l := status.Lease
	if l == nil {
		return "none"
	}
	s := cli.Join(l.Subnet, l.IPv6Subnet)
	switch {
	case l.Reservation:
		s += ", reserved: it does not end"
	case !l.Expires.IsZero() && l.Expires.Before(now):
		s += ", ended " + cli.Ago(l.Expires, now)
	case !l.Expires.IsZero():
		s += ", ends in " + cli.Span(l.Expires.Sub(now))
	}
	if !l.Held {
		s += ", not confirmed by the " + storeName(status.Store)
	}
	if l.Detail != "" {
		s += " (" + l.Detail + ")"
	}
	return s
}

func backendLine(b control.Backend) string {
	if b.Type == "" {
		return "not started"
	}
	s := b.Type
	add := func(ok bool, format string, a ...any) {
		if ok {
			s += fmt.Sprintf(", "+format, a...)
		}
	}
	add(b.Path != "", "path %s", b.Path)
	add(b.Encrypt != "", "encrypted %s", strings.ReplaceAll(b.Encrypt, "-", " "))
	add(b.Device != "", "device %s", b.Device)
	add(b.MTU > 0, "MTU %d", b.MTU)
	add(b.Port > 0, "port %d", b.Port)
	add(!b.InPlace, "NOT IN PLACE")
	return s
}

func underlayLine(u control.Underlay) string {
	if u.Link == "" {
		return "not chosen"
	}
	s := fmt.Sprintf("%s, %s, MTU %d", u.Link, cli.Join(u.Address, u.IPv6Address), u.MTU)
	if u.PublicIP != u.Address || u.PublicIPv6 != u.IPv6Address {
		s += ", peers are told " + cli.Join(u.PublicIP, u.PublicIPv6)
	}
	if u.Lost != "" {
		s += ", LOST: " + u.Lost
	}
	return s
}

// storeRow returns the heading of the store's line, storeName the store's name in other lines.
func storeRow(s control.Store) string {
	if s.Kind == control.KindKubernetes {
		return "kubernetes"
	}
	return "store"
}

func storeName(s control.Store) string {
	if s.Kind == control.KindKubernetes {
		return "API server"
	}
	return "store"
}

func storeLine(s control.Store, now time.Time) string {
	line := fmt.Sprintf("%s %s, prefix %s", s.Kind, strings.Join(s.Endpoints, " "), s.Prefix)
	if s.Kind == control.KindKubernetes {
		line = fmt.Sprintf("API server %s, annotations %s", strings.Join(s.Endpoints, " "), s.Prefix)
	}
	switch {
	case s.Connected:
	case s.Refuses:
		line += ", REFUSES US"
	case !s.FailingSince.IsZero() && s.LastSeen.After(s.FailingSince):
		line += ", ANSWERS BUT DOES NOT SERVE US"
	default:
		line += ", NOT ANSWERING"
	}
	if s.LastSeen.IsZero() {
		line += ", not heard since weftd started"
	} else {
		line += ", last heard " + cli.Ago(s.LastSeen, now)
	}
	if s.Error != "" {
		line += ": " + s.Error
	}
	return line
}

func cacheLine(c control.Cache, now time.Time) string {
	line := c.File + ", not there yet"
	if !c.SavedAt.IsZero() {
		line = c.File + ", written " + cli.Ago(c.SavedAt, now)
	}
	if c.Used {
		line += ", this run began with it"
	}
	return line
}

func peersLine(s control.Status) string {
	line := fmt.Sprint(s.Peers)
	if s.Rejected > 0 {
		line += fmt.Sprintf(", not believed: %s (see weft lease list)", cli.Count(s.Rejected, "record"))
	}
	return line
}

func printCounters(w io.Writer, c control.Counters) error {
	t := cli.NewList(w, "packets", "received", "delivered", "dropped", "")
	for _, f := range []struct {
		name string
		flow control.Flow
	}{{"to peers", c.Egress}, {"from peers", c.Ingress}} {
		t.Row(f.name, cli.Packets(f.flow.Received, f.flow.ReceivedBytes),
			cli.Packets(f.flow.Delivered, f.flow.DeliveredBytes), cli.Total(f.flow.Drops), reasons(f.flow.Drops))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printOffloads(w, c.Offloads); err != nil {
		return err
	}
	if c.SocketOverflow+c.DeviceDropped > 0 {
		fmt.Fprintf(w, "lost in the kernel, whose queues were full: socket %d, device %d\n", c.SocketOverflow,
			c.DeviceDropped)
	}
	if c.HeldBack > 0 {
		fmt.Fprintf(w, "held back: %d of the peers, whose packets filled the queue that others share (the log "+
			"names them)\n", c.HeldBack)
	}
	return nil
}

// printDevices shows what the kernel counted where it moves the packets.
func printDevices(w io.Writer, l []control.DeviceCounters) error {
	if len(l) == 0 {
		_, err := fmt.Fprintf(w, "\nweftd itself moves no packets with this backend: ip -s link counts them\n")
		return err
	}
	t := cli.NewList(w, "the kernel's counts", "sent", "received", "dropped out/in", "errors out/in", "")
	for _, d := range l {
		whose := "all peers together"
		if !d.Overlay {
			whose = "with all else that this host sends there"
		}
		t.Row(d.Name, cli.Packets(d.TxPackets, d.TxBytes), cli.Packets(d.RxPackets, d.RxBytes),
			fmt.Sprintf("%d/%d", d.TxDropped, d.RxDropped), fmt.Sprintf("%d/%d", d.TxErrors, d.RxErrors), whose)
	}
	return t.Flush()
}

// printOffloads shows what the kernel does for many packets at once, and for how many.
func printOffloads(w io.Writer, l []control.Offload) error {
	t := cli.NewList(w, "offload", "state", "calls", "packets a call")
	for _, o := range l {
		each := "-"
		if o.Calls > 0 {
			each = fmt.Sprintf("%.1f", float64(o.Packets)/float64(o.Calls))
		}
		t.Row(o.Name, o.State, o.Calls, each)
	}
	return t.Flush()
}

// reasons prints drops as "no_route 3, ttl 1".
func reasons(drops []control.Drop) string {
	var out []string
	for _, d := range drops {
		out = append(out, fmt.Sprintf("%s %d", d.Reason, d.Packets))
	}
	return strings.Join(out, ", ")
}

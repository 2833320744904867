package diag

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/ping"
	"weft/cmd/weft/internal/cli"
	"weft/tunnel/port"
)

// pingFlags are those of weft ping.
type pingFlags struct {
	*cli.App
	options   ping.Options
	four, six bool
}

func pingCommand(app *cli.App) *cobra.Command {
	f := pingFlags{App: app}
	cmd := &cobra.Command{
		Use:   "ping PEER|POD",
		Short: "Ask the way to a node or a pod layer by layer, and name the first that is broken with its causes",
		Long: "Ask the way to a node, or to a pod by its address, layer by layer:\n\n" +
			"  underlay    the node's own address, by ICMP\n" +
			"  port        the overlay's UDP port there: answered by weft's data plane, rejected, or silent\n" +
			"  data-plane  the node's overlay address, by ICMP through the overlay\n" +
			"  daemon      the weftd of that node, by UDP through the overlay; this node's weftd asks it\n" +
			"  bridge      the first address of the node's subnet, which the bridge of its pods has\n" +
			"  pod         the pod\n\n" +
			"Of each it says what was lost, the round trip and the largest packet that passes (MTU; >= where larger " +
			"ones may too, since\n" +
			"the search did not end). All are asked at once, and it takes ten seconds at most by default. At the " +
			"first broken layer it\n" +
			"names the causes, the likeliest first, each with the command that tells it from the others. A layer " +
			"that does not answer\n" +
			"by itself, while what rests on it does, is not broken. What cannot be told apart from here is said " +
			"so.\n\n" +
			cli.NodeArgument + " An address that is in a node's\nsubnet and not its first one is a pod's. Where weftd " +
			"does not run, the state that it left and the store\n" +
			"are asked, and what only weftd could have asked is said. It needs CAP_NET_RAW, or a group of sysctl " +
			"net.ipv4.ping_group_range.\n\n" +
			"Exit status: 0 if no layer is broken, 1 if one is or nothing could be asked, 2 for wrong usage.",
		Example: "  weft ping node-b\n  weft ping 10.42.3.7\n  weft ping -6 -c 20 --interval 50ms 192.0.2.7\n  " +
			"weft ping --json node-b | jq '.ways[].causes'",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	f.Bind(cmd)
	fs := cmd.Flags()
	fs.IntVarP(&f.options.Count, "count", "c", 5, "questions to each layer")
	fs.DurationVar(&f.options.Interval, "interval", 200*time.Millisecond, "time from one question to the next")
	fs.DurationVarP(&f.options.Timeout, "timeout", "W", 2500*time.Millisecond, "how long an answer may take")
	fs.IntVar(&f.options.Size, "size", 0, "length of each question as an IP packet, in bytes (default the "+
		"shortest)")
	fs.BoolVarP(&f.four, "ipv4", "4", false, "only the way by the overlay's IPv4 addresses")
	fs.BoolVarP(&f.six, "ipv6", "6", false, "only the way by the overlay's IPv6 addresses")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, part string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.CompletePeers(cmd, args, part)
	}
	return cmd
}

// Limits of the flags. For more or longer questions there is weft bench.
const (
	maxPingCount    = 1000
	minPingInterval = time.Millisecond
	maxPingTimeout  = time.Minute
)

func (f *pingFlags) check() error {
	o := f.options
	switch {
	case o.Count < 1 || o.Count > maxPingCount:
		return cli.Usagef("--count %d: want 1 to %d", o.Count, maxPingCount)
	case o.Interval < minPingInterval || o.Interval > maxPingTimeout:
		return cli.Usagef("--interval %v: want %v to %v", o.Interval, minPingInterval, maxPingTimeout)
	case o.Timeout < minPingInterval || o.Timeout > maxPingTimeout:
		return cli.Usagef("--timeout %v: want %v to %v", o.Timeout, minPingInterval, maxPingTimeout)
	case o.Size < 0 || o.Size > port.MaxPacket:
		return cli.Usagef("--size %d: want up to %d bytes, headers included", o.Size, port.MaxPacket)
	case f.four && f.six:
		return cli.Usagef("-4 and -6: one of them only; without either both are asked")
	}
	return nil
}

func (f *pingFlags) run(ctx context.Context, stdout io.Writer, word string) error {
	if err := f.check(); err != nil {
		return err
	}
	began := time.Now()
	known, err := ping.Learn(ctx, f.Socket, os.Environ())
	if err != nil {
		return err
	}
	n, want, err := f.find(known, word)
	if err != nil {
		return err
	}
	ways, err := known.Routes(n, want)
	if err != nil {
		return err
	}
	r := ping.Report{SchemaVersion: ping.SchemaVersion, At: began, Target: word, Node: n.Name, ID: n.Node,
		Source: known.Source, Notes: known.Notes, Healthy: known.Running}
	r.Routes = make([]ping.Result, len(ways))
	var wg sync.WaitGroup
	for i, w := range ways {
		wg.Go(func() {
			r.Routes[i] = ping.Run(ctx, ping.Host{Weftd: f.Client()}, w, f.options, f.arrived(ctx, known, n))
		})
	}
	wg.Wait()
	for _, w := range r.Routes {
		r.Healthy = r.Healthy && w.Broken == ""
	}
	r.Took = time.Since(began)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	return f.print(stdout, r)
}

// arrived returns what counts the packets that the data plane got from n; nil if nobody does.
func (f *pingFlags) arrived(ctx context.Context, k ping.Known, n ping.Node) func() (uint64, bool) {
	if !k.Running || n.Own {
		return nil
	}
	return func() (uint64, bool) {
		all, err := f.Client().Peers(ctx)
		if err != nil {
			return 0, false
		}
		for _, p := range all.Peers {
			if p.Traffic != nil && slices.Equal(p.Subnets, n.Peer.Subnets) {
				return p.RxPackets, true
			}
		}
		return 0, false
	}
}

// find returns the node that word means, and which of its pods if it is a pod's address.
func (f *pingFlags) find(k ping.Known, word string) (n ping.Node, want ping.Want, err error) {
	switch {
	case f.four:
		want.Family = 4
	case f.six:
		want.Family = 6
	}
	keys := make([]cli.NodeKeys, len(k.Nodes))
	for i, n := range k.Nodes {
		keys[i] = cli.NodeKeys{Name: n.Name, ID: n.Node, Addresses: []netip.Addr{n.PublicIP, n.PublicIPv6},
			Subnets: []netip.Prefix{n.Subnet, n.IPv6Subnet}}
	}
	i, err := cli.FindNode(keys, word)
	if err != nil {
		return n, want, err
	}
	n = k.Nodes[i]
	a, parse := netip.ParseAddr(word)
	if a = a.Unmap(); parse == nil && a != n.PublicIP && a != n.PublicIPv6 {
		for _, s := range keys[i].Subnets {
			if s.IsValid() && s.Contains(a) && s.Masked().Addr() != a {
				want.Pod = a
			}
		}
	}
	switch {
	case n.Own && !want.Pod.IsValid():
		return n, want, cli.Usagef("%s is this node itself: weft ping takes another node, or a pod's address (weft "+
			"status and weft doctor are about this node)", word)
	case want.Pod.IsValid() && (f.four && a.Is6() || f.six && a.Is4()):
		return n, want, cli.Usagef("%s is no address of that family: leave out -4 and -6", word)
	}
	return n, want, nil
}

// print prints r. Its error is the exit status if something is broken.
func (f *pingFlags) print(w io.Writer, r ping.Report) error {
	if f.JSON {
		return status(cli.PrintJSON(w, r), r.Healthy)
	}
	return status(printPing(w, r), r.Healthy)
}

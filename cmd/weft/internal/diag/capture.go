package diag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/internal/pcapfilter"
	"weft/cmd/weft/internal/cli"
	"weft/tunnel/port"
)

// captureFlags are those of weft capture.
type captureFlags struct {
	*cli.App
	request  control.CaptureRequest
	duration time.Duration
	file     string
	force    bool
}

func captureCommand(app *cli.App) *cobra.Command {
	f := captureFlags{App: app}
	cmd := &cobra.Command{
		Use:   "capture [FILTER]",
		Short: "Show packets of the overlay as they pass, and those that are dropped with the reason",
		Long: "Show packets of the overlay as they pass, and those that are dropped with the reason.\n\n" +
			"Without --inner, --outer or --dropped it is the inner packets, passed and dropped. With -w they are " +
			"written as\n" +
			"pcapng, in which the comments of a packet say the peer and why it was dropped; else one line is " +
			"printed for each.\n" +
			"On the user-space paths weftd copies packets for as long as somebody looks. A reader that is too slow " +
			"misses\n" +
			"packets, and is told how many; it never holds traffic up. A capture takes some 5 MB of weftd's memory, " +
			"less with\n" +
			"--snaplen, and four may be under way. Superpackets (which stand for several packets of a\n" +
			"flow) are shown whole, with a note. Outer headers are made from the addresses; tcpdump on the underlay " +
			"shows the\n" +
			"kernel's. Where the kernel moves the packets (vxlan, host-gw), the devices are listened to, and what " +
			"is dropped is\n" +
			"not known.\n\n" +
			"FILTER is in pcap's language: host, net, port, portrange, proto, less, greater; ip, ip6, tcp, udp, " +
			"sctp, icmp, icmp6;\n" +
			"src, dst; and, or, not, and brackets. Names are not looked up. With --outer it is about the outer header.",
		Example: "  weft capture\n" +
			"  weft capture --dropped --duration 10s\n" +
			"  weft capture --peer node-b 'tcp port 80 and host 10.42.1.5'\n" +
			"  weft capture --inner -w - | tshark -r -\n" +
			"  ssh node-a weft capture -w - | wireshark -k -i -",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.request.Filter = strings.Join(args, " ")
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"host", "net", "port", "tcp", "udp", "icmp", "icmp6",
			"ip", "ip6", "src", "dst", "not"}, cobra.ShellCompDirectiveNoFileComp),
	}
	f.Bind(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.request.Inner, "inner", false, "inner packets, as pods see them, that are passed on")
	flags.BoolVar(&f.request.Outer, "outer", false, "the datagrams on the underlay that carry them")
	flags.BoolVar(&f.request.Dropped, "dropped", false, "packets that are dropped, with the reason")
	flags.StringVar(&f.request.Peer, "peer", "",
		"only to and from this node: its name, id or the beginning of that, address, or subnet")
	flags.Uint64VarP(&f.request.Count, "count", "c", 0, "end after so many packets")
	flags.DurationVar(&f.duration, "duration", 0, "end after this time, as in 30s")
	flags.IntVarP(&f.request.SnapLen, "snaplen", "s", 0, "keep so many bytes of each packet (default all)")
	flags.StringVarP(&f.file, "write", "w", "", "write pcapng to this new file, - for standard output")
	flags.BoolVar(&f.force, "force", false, "let --write replace a file that exists")
	_ = cmd.RegisterFlagCompletionFunc("peer", f.CompletePeers) // the flag is there
	return cmd
}

func (f *captureFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	switch _, bad := pcapfilter.Compile(f.request.Filter); {
	case bad != nil:
		return cli.AsUsage(bad)
	case f.duration < 0 || f.request.SnapLen < 0 || f.request.SnapLen > port.MaxPacket:
		return cli.Usagef("--duration %v, --snaplen %d: neither may be negative, and no packet is longer than %d bytes",
			f.duration, f.request.SnapLen, port.MaxPacket)
	case f.force && (f.file == "" || f.file == "-"):
		return cli.Usagef("--force: it is about a file, which --write FILE names")
	case f.JSON && f.file != "":
		return cli.Usagef("--json and --write: one of them only")
	}
	f.request.Seconds = f.duration.Seconds()
	var show func(control.Captured) error
	switch {
	case f.file == "-" && cli.IsTerminal(stdout):
		return cli.Usagef("--write -: standard output is a terminal, which cannot show pcapng: " +
			"pipe it, as in weft capture -w - | tshark -r -")
	case f.JSON:
		show = eachPacket(func(p capturedPacket) error { return cli.PrintLine(stdout, p) })
	case f.file == "":
		show = eachPacket(func(p capturedPacket) error {
			_, err := fmt.Fprintln(stdout, p.line())
			return err
		})
	}
	if f.request.Peer != "" { // as the other commands find a node; weftd takes the first of those with a name
		all, err := f.Client().Peers(ctx)
		if err != nil {
			return err
		}
		one, err := cli.OnlyPeers(all, []string{f.request.Peer})
		if err != nil {
			return err
		}
		if s := one.Peers[0].Subnets; len(s) > 0 {
			f.request.Peer = s[0].String()
		}
	}
	stream, err := f.Client().Capture(ctx, f.request)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // nothing is written to it
	if show == nil {
		out := stdout
		if f.file != "-" {
			file, err := captureFile(f.file, f.force)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			out = file
		}
		if show, err = capturePcapng(out, f.request); err != nil {
			return err
		}
	}
	return f.follow(ctx, stream, show, stderr)
}

// captureFile makes a file for a capture that only its user can read. It never writes to a file that was
// there, which may lead to another one or be open to another user: with force it takes the place of a regular
// file of this user's.
func captureFile(path string, force bool) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil {
		owner, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("--write %s: it exists and is no regular file: name a new file, or use --write - "+
				"and redirect it", path)
		case ok && int(owner.Uid) != os.Geteuid():
			return nil, fmt.Errorf("--write %s: it belongs to another user: name a new file", path)
		case force:
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("--write --force: %w", err)
			}
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("--write %s: it exists: name a new file, or give --force to replace it", path)
	}
	return file, err
}

// follow shows the stream, and says at the end what was missed.
func (f *captureFlags) follow(ctx context.Context, stream *control.CaptureStream,
	show func(control.Captured) error, stderr io.Writer) error {
	packets, missed := 0, uint64(0)
	defer func() {
		fmt.Fprintf(stderr, "%s captured", cli.Count(packets, "packet"))
		if missed > 0 {
			fmt.Fprintf(stderr, ", %d missed: this reader was too slow for them (a filter, --peer or --snaplen 128 "+
				"makes it less)", missed)
		}
		fmt.Fprintln(stderr)
	}()
	for {
		c, err := stream.Next()
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil // asked for, or weftd ends
		case err != nil:
			return fmt.Errorf("weftd's stream of packets ended: %w", err)
		}
		if c.Packet != nil {
			packets++
		} else {
			missed = c.Missed
		}
		if err := show(c); err != nil {
			return err
		}
	}
}

package show

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/top"
)

// topFlags are those of weft top.
type topFlags struct {
	*cli.App
	every time.Duration
	times int
	once  bool
	sort  string
}

func topCommand(app *cli.App) *cobra.Command {
	f := topFlags{App: app}
	cmd := &cobra.Command{
		Use:   "top [NODE…]",
		Short: "Show what passes now: rates, loss and round trip of each peer, workers, offloads, drops",
		Long: "Show what passes now, in all and with each peer or those that are named: packets and bits a " +
			"second of inner packets, loss and\n" +
			"round trip as the probes find them, what workers and offloads do, and what is dropped a second, by " +
			"reason.\n\n" +
			"In a terminal it is shown in place, every --interval; a narrow terminal has fewer columns, the most " +
			"important ones. Keys: s takes\n" +
			"the next order of peers, q ends it. In a pipe, with NO_COLOR or with -n, it is a block of plain text " +
			"an interval; with --json an\n" +
			"object on a line of its own. A weftd that goes away is said, and followed when it comes back.\n\n" +
			"Columns: b/s and p/s are bits and packets a second, out to the peer and in from it; LOSS is the worse " +
			"direction of the last\n" +
			"64 probes; PASSES is the largest inner packet that passed, with ! if larger ones are lost. Where the " +
			"kernel moves the packets (vxlan, host-gw), it\n" +
			"does not count for each peer.\n\n" +
			cli.NodeArgument,
		Example: "  weft top\n  weft top --sort loss\n  weft top db1 web2 --interval 5s\n  weft top --once\n  " +
			"weft top --json -n 10 | jq .in.bitsPerSecond",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	f.Bind(cmd)
	l := cmd.Flags()
	bindInterval(l, &f.every)
	l.IntVarP(&f.times, "count", "n", 0, "end after this `number` of intervals; 0 is never")
	l.BoolVar(&f.once, "once", false, "show one interval and end, as -n 1 does")
	l.StringVar(&f.sort, "sort", top.ByTraffic, "order of the peers, by this `key`: "+
		strings.Join(top.SortKeys(), ", "))
	cmd.ValidArgsFunction = f.CompletePeers
	cli.CompleteFlags(cmd, map[string]cli.Completer{"sort": cli.OneOf(top.SortKeys()...)})
	return cmd
}

func (f *topFlags) run(ctx context.Context, stdout io.Writer, nodes []string) error {
	switch {
	case !slices.Contains(top.SortKeys(), f.sort):
		return cli.Usagef("--sort %s: want one of %s", f.sort, strings.Join(top.SortKeys(), ", "))
	case f.times < 0:
		return cli.Usagef("-n %d: want 0, for no end, or more", f.times)
	case f.once:
		f.times = 1
	}
	s := sampler{client: f.Client(), nodes: nodes}
	w := cli.Watch{Every: f.every, Times: f.times, Unshown: 1, Stdout: stdout, Ask: s.ask}
	w.Draw = func(width, height int) []cli.Line {
		o := top.Options{Width: width, Height: height, Sort: f.sort, Parts: top.Everything}
		if height > 0 {
			o.Every, o.Hint = f.every, "by "+f.sort+" (s: next, q: quit)"
		}
		return top.Render(s.picture, o)
	}
	w.Key = func(k byte) {
		if k == 's' {
			all := top.SortKeys()
			f.sort = all[(slices.Index(all, f.sort)+1)%len(all)]
		}
	}
	if f.JSON {
		w.Print = func(out io.Writer) error { return cli.PrintLine(out, s.picture) }
	}
	err := w.Run(ctx)
	if err == nil && f.times > 0 {
		err = s.away // the last answer was none
	}
	return err
}

// sampler asks weftd again and again, and makes pictures of what it says.
type sampler struct {
	client *control.Client
	nodes  []string // only these, unless it is empty

	begun bool // ask's: there was an answer

	// The rest is the caller's.
	last    *top.Sample // that was answered; nil if there was none
	picture top.Picture
	away    error // why there was no answer the last time
}

// ask is watch.ask.
func (s *sampler) ask(ctx context.Context) (func(), error) {
	now, err := s.sample(ctx)
	at := time.Now()
	if err != nil && !s.begun {
		return nil, err
	}
	s.begun = true
	return func() {
		if err != nil {
			s.picture, s.away = s.picture.Gone(at, err), err
			return
		}
		back := s.away != nil
		s.picture, s.away = top.Diff(s.last, now), nil
		if back && s.picture.Note == "" {
			s.picture.Note = "weftd answers again"
		}
		s.last = &now
	}, nil
}

func (s *sampler) sample(ctx context.Context) (now top.Sample, err error) {
	if now.Status, err = s.client.Status(ctx); err != nil {
		return now, err
	}
	if now.Peers, err = s.client.Peers(ctx); err != nil {
		return now, err
	}
	now.At = time.Now()
	diagnose.Peers(now.Status, &now.Peers)
	named, err := cli.OnlyPeers(now.Peers, s.nodes)
	if err != nil && s.begun { // it was there: a node that is gone is no reason to end
		named, err = control.Peers{}, nil
		for _, n := range s.nodes {
			if one, bad := cli.OnlyPeers(now.Peers, []string{n}); bad == nil {
				named.Peers = append(named.Peers, one.Peers...)
			}
		}
	}
	now.Peers = named
	return now, err
}

// bindInterval adds the flag of everything that is shown again and again.
func bindInterval(f *pflag.FlagSet, every *time.Duration) {
	f.DurationVar(every, "interval", time.Second, "`time` from one look to the next")
}

// watchFlags are those of commands that show something once, or again and again.
type watchFlags struct {
	on    bool
	every time.Duration
}

func (f *watchFlags) bind(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.on, "watch", "w", false,
		"show it again and again, with rates: in place in a terminal, else a block of text an interval, or a "+
			"line with --json")
	bindInterval(cmd.Flags(), &f.every)
}

// check refuses an interval without --watch.
func (f *watchFlags) check(cmd *cobra.Command) error {
	if !f.on && cmd.Flags().Changed("interval") {
		return cli.Usagef("--interval goes with --watch")
	}
	return nil
}

// watching shows again and again, until q, what draw makes of s, or lines of JSON of its answer.
func watching(c *cli.App, s *sampler, stdout io.Writer, every time.Duration,
	draw func(width, height int) []cli.Line, answer func() any) cli.Watch {
	w := cli.Watch{Every: every, Unshown: 1, Stdout: stdout, Ask: s.ask, Draw: draw}
	if c.JSON {
		w.Unshown = 0
		w.Print = func(out io.Writer) error { return cli.PrintLine(out, s.moment(), answer()) }
	}
	return w
}

// watchPeers is weft peers --watch.
func watchPeers(ctx context.Context, c *cli.App, stdout io.Writer, every time.Duration,
	nodes []string) error {
	s := sampler{client: c.Client(), nodes: nodes}
	w := watching(c, &s, stdout, every, func(width, height int) []cli.Line {
		return top.Render(s.picture, top.Options{Width: width, Height: height, Sort: top.ByName,
			Parts: top.Head | top.Peers})
	}, func() any { return s.last.Peers })
	return w.Run(ctx)
}

// watchStatus is weft status --watch: the page, and in place of what was counted since the start what happens
// now.
func watchStatus(ctx context.Context, c *cli.App, stdout io.Writer, every time.Duration) error {
	s := sampler{client: c.Client()}
	w := watching(c, &s, stdout, every, func(width, height int) []cli.Line {
		page := cli.LinesOf(width, func(w io.Writer) error {
			return printState(w, s.last.Status, s.picture.Time)
		})
		if s.away != nil {
			page = append([]cli.Line{{Text: cli.Cut("NO ANSWER: "+cli.Clean(s.away.Error()), width),
				Kind: cli.Bad}, {}},
				page...)
		}
		now := top.Render(s.picture, top.Options{Width: width, Parts: top.Plane})
		if height > 0 {
			now = now[:min(len(now), max(2, height/2))]
			page = page[:min(len(page), max(0, height-len(now)-1))]
		}
		return append(append(page, cli.Line{}), now...)
	}, func() any { return s.last.Status })
	return w.Run(ctx)
}

// moment is when a line of JSON was true, and why there was no answer then; then the rest of the line is of
// the last one.
type moment struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error,omitempty"`
}

func (s *sampler) moment() moment {
	m := moment{Time: s.picture.Time}
	if s.away != nil {
		m.Error = s.away.Error()
	}
	return m
}

package show

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weft/cmd/internal/events"
	"weft/cmd/weft/internal/cli"
)

// eventsFlags are those of weft events.
type eventsFlags struct {
	*cli.App
	dir, since string
	kinds      []string
	last       int
	follow     bool
}

func eventsCommand(app *cli.App) *cobra.Command {
	f := eventsFlags{App: app}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what this node has seen and done: leases, peers, repairs, choices, faults",
		Long: "Show what this node has seen and done, with times: leases, peers that came, went or changed, " +
			"routes and rules that were repaired,\n" +
			"what was chosen and why, and faults.\n\n" +
			"weftd writes it to its state directory (--cache-dir), half a megabyte at most, so that it is there " +
			"after a restart, and\n" +
			"also while weftd does not run. docs/reference/events.md explains the kinds.",
		Example: "  weft events --since 1h\n  weft events --kind peer_gone --kind store_lost\n  weft events " +
			"--follow\n  weft events --json --since 2026-01-02T03:04:05Z",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.Bind(cmd)
	l := cmd.Flags()
	l.StringVar(&f.dir, "cache-dir", "", "state `directory` of weftd (default: that of the weftd that runs "+
		"here, else $WEFTD_CACHE_DIR or /var/lib/weft)")
	l.StringVar(&f.since, "since", "", "show what happened since then: a `time` ago such as 90m or 24h, or a "+
		"point in time such as 2026-01-02T03:04:05Z")
	l.StringSliceVar(&f.kinds, "kind", nil, "show events of this `kind` only; may be given several times")
	l.IntVarP(&f.last, "last", "n", 0, "show the last `N` only; 0 is all")
	l.BoolVarP(&f.follow, "follow", "f", false, "go on, and show what happens from now on")
	cli.CompleteFlags(cmd, map[string]cli.Completer{"since": cli.OneOf("15m", "1h", "24h", "7d"),
		"kind": cli.ManyOf(events.Kinds())})
	return cmd
}

// followEvery is the time between two looks at the history.
const followEvery = 500 * time.Millisecond

func (f *eventsFlags) run(ctx context.Context, w, stderr io.Writer) error {
	after, err := sinceTime(f.since, time.Now())
	if err != nil {
		return cli.AsUsage(err)
	}
	for _, k := range f.kinds {
		if !slices.Contains(events.Kinds(), k) {
			return cli.Usagef("--kind %q: want one of %s", k, strings.Join(events.Kinds(), ", "))
		}
	}
	if f.last < 0 {
		return cli.Usagef("-n %d: want 0, for all, or more", f.last)
	}
	dir := f.dir
	if dir == "" {
		dir, _ = f.StateDir(ctx)
	}
	all, err := events.Read(dir, time.Time{})
	if errors.Is(err, fs.ErrNotExist) {
		if err = historyless(dir, err); f.follow {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	l := f.wanted(slices.DeleteFunc(slices.Clone(all), func(e events.Event) bool {
		return !e.Time.After(after)
	}))
	if f.last > 0 {
		l = l[max(0, len(l)-f.last):]
	}
	if f.JSON && !f.follow {
		return cli.PrintDocument(w, struct {
			Directory string         `json:"directory"`
			Events    []events.Event `json:"events"`
		}{dir, append([]events.Event{}, l...)})
	}
	if len(l) == 0 && !f.follow { // an empty answer would leave open whether anything was looked at
		if len(all) == 0 {
			fmt.Fprintf(stderr, "weft: there is no event in %s yet\n", cli.Clean(dir))
		} else {
			fmt.Fprintf(stderr, "weft: none of the %s in %s: see --since and --kind\n",
				cli.Count(len(all), "event"), cli.Clean(dir))
		}
	}
	for {
		for _, e := range l {
			if err := f.print(w, e); err != nil {
				return err
			}
		}
		if !f.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		before := all
		if all, err = events.Read(dir, time.Time{}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l = all
		if n := len(before); n > 0 {
			l = events.After(all, before[n-1])
		}
		l = f.wanted(slices.Clone(l))
	}
}

// historyless says why there may be no history.
func historyless(dir string, err error) error {
	if _, none := os.Stat(dir); none != nil {
		return fmt.Errorf("%w: weftd keeps its history in its state directory: name that with --cache-dir, or "+
			"run this where weftd runs", none)
	}
	return fmt.Errorf("%w: weftd has written no history there: either it has not run since it keeps one, or "+
		"it cannot write (its log says so)", err)
}

// sinceTime reads --since.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d.Abs()), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 10000 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %q: want a time ago, such as 90m, 24h or 7d, or a point in time, "+
		"such as 2026-01-02T03:04:05Z", text)
}

func (f *eventsFlags) wanted(l []events.Event) []events.Event {
	if len(f.kinds) == 0 {
		return l
	}
	return slices.DeleteFunc(l, func(e events.Event) bool { return !slices.Contains(f.kinds, string(e.Kind)) })
}

// print writes one event: a line for people, or a JSON document on a line of its own.
func (f *eventsFlags) print(w io.Writer, e events.Event) error {
	if f.JSON {
		return json.NewEncoder(w).Encode(struct {
			SchemaVersion int `json:"schema_version"`
			events.Event
		}{1, e})
	}
	line := fmt.Sprintf("%s  %-7s  %-16s  %s", e.Time.Local().Format("2006-01-02 15:04:05"), e.Level,
		e.Kind, e.Message)
	for _, k := range slices.Sorted(maps.Keys(e.Details)) {
		v := e.Details[k]
		if v == "" {
			continue
		}
		if strings.ContainsAny(v, " \"=") {
			v = strconv.Quote(v)
		}
		line += "  " + k + "=" + v
	}
	_, err := fmt.Fprintln(w, cli.Clean(line))
	return err
}

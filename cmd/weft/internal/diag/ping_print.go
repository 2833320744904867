package diag

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"weft/cmd/internal/ping"
	"weft/cmd/weft/internal/cli"
)

// printPing prints a table for each family, and below it the causes of what is broken.
func printPing(w io.Writer, r ping.Report) error {
	fmt.Fprintf(w, "%s; addresses of %s\n", cli.Clean(cli.NodeText(r.Node, r.ID)), cli.Clean(r.Source))
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", cli.Clean(n))
	}
	for _, way := range r.Routes {
		by := way.Backend
		if way.Path != "" {
			by += " by path " + way.Path
		}
		fmt.Fprintf(w, "\nIPv%d, %s\n", way.Family, by)
		t := cli.NewTable(w, "LAYER", "TO", "ANSWERED", "LOSS", "RTT MIN/MEDIAN/MAX", "MTU", "VERDICT")
		for _, row := range way.Layers {
			t.Row(row.Layer, pingTo(row), pingAnswers(row), cli.Share(row.Loss), pingTrips(row.RTT),
				pingMTU(row),
				pingVerdict(row))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		printCauses(w, way)
	}
	state := "nothing is broken"
	for _, way := range r.Routes {
		if way.Broken != "" {
			state = "BROKEN"
		}
	}
	if state != "BROKEN" && !r.Healthy {
		state = "not all could be asked"
	}
	_, err := fmt.Fprintf(w, "\n%s; took %.1fs\n", state, r.Took.Seconds())
	return err
}

func pingTo(r ping.Row) string {
	switch {
	case !r.To.IsValid():
		return "-"
	case r.Port != 0:
		return netip.AddrPortFrom(r.To, r.Port).String()
	}
	return r.To.String()
}

func pingAnswers(r ping.Row) string {
	if r.Sent == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.Answered, r.Sent)
}

func pingTrips(r *ping.RTT) string {
	if r == nil {
		return "-"
	}
	return cli.Milliseconds(int64(r.Min)) + "/" + cli.Milliseconds(int64(r.Median)) + "/" +
		cli.Milliseconds(int64(r.Max))
}

// pingMTU is the largest packet that passed, and what should.
func pingMTU(r ping.Row) string {
	switch {
	case r.MTU == 0:
		return "-"
	case r.MTUUnfinished:
		return fmt.Sprintf(">=%d of %d", r.MTU, r.Expected)
	case r.MTU < r.Expected:
		return fmt.Sprintf("%d of %d", r.MTU, r.Expected)
	}
	return fmt.Sprint(r.MTU)
}

func pingVerdict(r ping.Row) string {
	text := string(r.Verdict)
	if r.Verdict == ping.Broken {
		text = strings.ToUpper(text)
	}
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

func printCauses(w io.Writer, way ping.Result) {
	if way.Broken == "" {
		return
	}
	fmt.Fprintf(w, "\nfirst broken: %s", way.Broken)
	if len(way.Alike) > 0 {
		var names []string
		for _, l := range way.Alike {
			names = append(names, string(l))
		}
		fmt.Fprintf(w, ", or else %s: nothing that can be asked from here tells them apart",
			strings.Join(names, " or "))
	}
	heading := "not excluded, the likeliest first:"
	if len(way.Causes) > 0 && way.Causes[0].Observed {
		heading = "cause:"
	}
	fmt.Fprintf(w, "\n%s\n", heading)
	for i, c := range way.Causes {
		fmt.Fprintf(w, "%3d. %s\n", i+1, cli.Clean(c.Cause))
		fmt.Fprintf(w, "     run %s: %s\n", cli.Clean(c.Where), cli.Clean(c.Command))
		fmt.Fprintf(w, "     it is this if it shows: %s\n", cli.Clean(c.Tells))
	}
}

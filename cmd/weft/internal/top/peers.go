package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"weft/cmd/weft/internal/cli"
)

// column is one of the table of peers.
type column struct {
	heading string
	// rank is its importance: those of the lowest numbers are there on the narrowest terminal.
	rank, width int
	left        bool
	cell        func(p Peer) string
}

// columns are in the order in which they stand. The first is the peer's name, which has what the others
// leave.
func columns(asOf time.Time) []column {
	return []column{
		{"RTT", 3, 6, false, rtt},
		{"LOSS", 4, 7, false, loss},
		{"OUT b/s", 1, 7, false, func(p Peer) string { return p.Out.bits() }},
		{"IN b/s", 2, 6, false, func(p Peer) string { return p.In.bits() }},
		{"OUT p/s", 6, 7, false, func(p Peer) string { return p.Out.packets() }},
		{"IN p/s", 7, 6, false, func(p Peer) string { return p.In.packets() }},
		{"REFUSED/s", 8, 9, false, func(p Peer) string { return some(p.Refused) }},
		{"ANSWERS", 5, 14, true, func(p Peer) string { return answers(p, asOf) }},
		{"PASSES", 9, 6, false, passes},
		{"ADDRESS", 10, 15, true, func(p Peer) string { return cli.OrDash(p.Address) }},
		{"PATH", 11, 8, true, func(p Peer) string { return cli.OrDash(p.Path) }},
		{"ID", 12, 13, true, func(p Peer) string { return cli.ShortID(p.Name, p.NodeID) }},
	}
}

const (
	nameLeast = 10 // of the first column, before others are left out
	nameMost  = 40
)

// peerTable has a heading, and a row for each peer. Below it, where there is no end to the lines, stands what
// is wrong with the way to them.
func peerTable(v Picture, o Options) []cli.Line {
	if len(v.Peers) == 0 {
		return []cli.Line{{Text: "no peers: no other node has a lease that is believed (see weft lease list)"}}
	}
	peers := sorted(v.Peers, o.Sort)
	name := nameLeast
	for _, p := range peers {
		name = min(nameMost, max(name, utf8.RuneCountInString(cli.Clean(p.Name))))
	}
	gap := 2
	if o.Width > 0 && o.Width < 60 {
		gap = 1
	}
	shown := columns(v.asOf())
	if o.Width > 0 {
		shown, name = fitting(shown, o.Width, gap, name)
	}
	between := strings.Repeat(" ", gap)
	line := func(first string, cell func(column) string) string {
		var b strings.Builder
		b.WriteString(pad(cli.Cut(first, name), name))
		for _, c := range shown {
			text := cli.Clean(cell(c))
			if c.left {
				text = pad(text, c.width)
			} else {
				text = padLeft(text, c.width)
			}
			b.WriteString(between + text)
		}
		return strings.TrimRight(b.String(), " ")
	}
	out := []cli.Line{{Text: line("PEER", func(c column) string { return c.heading }), Kind: cli.Heading}}
	var wrong []cli.Line
	for _, p := range peers {
		kind := cli.Plain
		if p.Likely != "" || p.Answers == "no" {
			kind = cli.Bad
		}
		text := line(cli.Clean(p.Name), func(c column) string { return c.cell(p) })
		out = append(out, cli.Line{Text: text, Kind: kind})
		if p.Likely != "" {
			wrong = append(wrong, cli.Line{Text: fmt.Sprintf("%s: %s; to tell: %s", p.Name, p.Likely, p.Look),
				Kind: cli.Bad})
		}
	}
	if len(wrong) > 0 && o.Height == 0 {
		return append(append(out, cli.Line{}), wrong...)
	}
	if room := o.Height / 4; len(wrong) > 0 && len(out)+len(wrong) <= o.Height-room {
		out = append(append(out, cli.Line{}), wrong...)
	}
	return out
}

// fitting returns the columns that fit, and the width of the first, which is given up to nameLeast for them.
func fitting(all []column, width, gap, name int) ([]column, int) {
	free := width - nameLeast
	rank := 0
	for next := 1; next <= len(all) && rank == next-1; next++ {
		for _, c := range all {
			if c.rank == next && free >= gap+c.width {
				free -= gap + c.width
				rank = next
			}
		}
	}
	var shown []column
	for _, c := range all {
		if c.rank <= rank {
			shown = append(shown, c)
		}
	}
	return shown, min(name, nameLeast+free)
}

// rtt says also, on the narrowest terminal, that there is no answer.
func rtt(p Peer) string {
	switch {
	case p.Answers == "no":
		return "silent"
	case p.RTT == 0 || p.Answers != "yes":
		return "-"
	}
	if p.RTT < 1e9 {
		return cli.Milliseconds(p.RTT)
	}
	return fmt.Sprintf("%.1fs", float64(p.RTT)/1e9)
}

// loss is the worse of both directions, and which that is.
func loss(p Peer) string {
	switch {
	case p.Answers != "yes":
		return "-"
	case p.Loss != nil:
		return cli.Share(p.Loss)
	case p.LossOut == nil && p.LossIn == nil:
		return "-"
	case number(p.LossOut) > number(p.LossIn):
		return cli.Share(p.LossOut) + "out"
	case number(p.LossIn) > 0:
		return cli.Share(p.LossIn) + "in"
	}
	return "0%"
}

func answers(p Peer, asOf time.Time) string {
	switch p.Answers {
	case "":
		return "-"
	case "unknown":
		return p.Answers
	}
	return p.Answers + " " + cli.Span(asOf.Sub(p.Since))
}

func passes(p Peer) string {
	switch {
	case p.PathMTU == 0:
		return "-"
	case p.LargeLost:
		return fmt.Sprint(p.PathMTU, "!")
	}
	return fmt.Sprint(p.PathMTU)
}

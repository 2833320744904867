package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"weft/cmd/weft/internal/cli"
)

// Options say how a Picture is laid out.
type Options struct {
	// Width and Height are the terminal's; 0 is without end, as in a file.
	Width, Height int
	// Sort is one of SortKeys.
	Sort string
	// Every is said in the first line, unless it is 0.
	Every time.Duration
	// Parts are those that are shown.
	Parts Parts
	// Hint stands at the end of the first line, where there is room.
	Hint string
}

// Parts of what is shown.
type Parts uint8

// The parts: what the node is, what its data plane does, and its peers.
const (
	Head Parts = 1 << iota
	Plane
	Peers
	Everything = Head | Plane | Peers
)

// Render lays v out. It returns Height lines at most, none wider than Width.
func Render(v Picture, o Options) []cli.Line {
	var head, low []cli.Line
	if o.Parts&Head != 0 {
		head = append(head, cli.Line{Text: title(v, o)})
	}
	head = append(head, troubles(v)...)
	if o.Parts&Plane != 0 {
		head = append(head, totals(v, o.Width)...)
		low = plane(v, o.Width)
	}
	var table []cli.Line
	if o.Parts&Peers != 0 {
		table = peerTable(v, o)
	}
	if o.Height > 0 {
		head, low, table = shorten(head, low, table, o.Height)
	}
	out := append(head, low...)
	if len(table) > 0 && len(out) > 0 && (o.Height == 0 || len(out)+len(table) < o.Height) {
		out = append(out, cli.Line{})
	}
	out = append(out, table...)
	for i := range out {
		out[i].Text = cli.Cut(cli.Clean(out[i].Text), o.Width)
	}
	return out
}

// least is how many lines of the table of peers are kept before lines of less importance: its heading, and
// some of them.
const least = 5

// shorten leaves out what does not fit: of the low lines the last first, then peers, and of the head what is
// not its beginning.
func shorten(head, low, table []cli.Line, height int) (_, _, _ []cli.Line) {
	if len(head) > height {
		return head[:height], nil, nil
	}
	free := height - len(head)
	low = low[:min(len(low), max(0, free-min(len(table), least)))]
	free -= len(low)
	if len(table) <= free {
		return head, low, table
	}
	if free < 2 {
		return head, low, nil
	}
	left := len(table) - (free - 1)
	table = append(table[:free-1:free-1], cli.Line{Text: fmt.Sprintf("and %d more", left)})
	return head, low, table
}

// title is the first line: which node, its state, how it carries packets, and when that was.
func title(v Picture, o Options) string {
	state := "ready"
	switch {
	case v.Error != "":
		state = "NO ANSWER"
	case !v.Ready:
		state = "NOT READY"
	}
	name := cmp.Or(v.Name, v.NodeID)
	clock := v.Time.Format("15:04:05")
	asked, answer := 0, 0
	for _, p := range v.Peers {
		if p.Answers != "" {
			asked++
		}
		if p.Answers == "yes" {
			answer++
		}
	}
	peers := cli.Count(len(v.Peers), "peer")
	if asked > 0 {
		peers += fmt.Sprintf(", %d answer", answer)
	}
	parts := []string{state, clock, peers}
	if v.Backend != "" {
		how := v.Backend
		if v.Path != "" {
			how += ", path " + v.Path
		}
		if v.MTU > 0 {
			how += fmt.Sprintf(", MTU %d", v.MTU)
		}
		parts = append(parts, how)
	}
	if o.Every > 0 {
		parts = append(parts, "every "+o.Every.String())
	}
	if o.Hint != "" {
		parts = append(parts, o.Hint)
	}
	if o.Width > 0 {
		name = cli.Cut(name, max(8, o.Width-len(state)-len(clock)-4))
	}
	return fit(o.Width, name, parts...)
}

// troubles are what somebody has to know before all numbers.
func troubles(v Picture) (out []cli.Line) {
	if v.Error != "" {
		out = append(out, cli.Line{Text: v.Error, Kind: cli.Bad}, cli.Line{Text: "What follows is as of " +
			v.asOf().Format("15:04:05") +
			"."})
	}
	if v.Note != "" {
		out = append(out, cli.Line{Text: v.Note})
	}
	if v.Error == "" {
		for _, r := range v.NotReady {
			out = append(out, cli.Line{Text: "not ready: " + r, Kind: cli.Bad})
		}
	}
	if v.Alarm != "" {
		out = append(out, cli.Line{Text: "ALARM: " + v.Alarm, Kind: cli.Bad})
	}
	return out
}

// totals are the two directions, what was dropped by either beside it.
func totals(v Picture, width int) (out []cli.Line) {
	for _, d := range []struct {
		name, direction string
		rate            *Rate
	}{{"to peers", "egress", v.Out}, {"from peers", "ingress", v.In}} {
		if d.rate == nil && len(v.Devices) > 0 && v.Seconds > 0 {
			continue // the kernel does not tell the overlay's packets from others: see below
		}
		parts := []string{fmt.Sprintf("%6s bit/s", d.rate.bits())}
		packets := fmt.Sprintf("%5s packets/s", d.rate.packets())
		dropped := 0.0
		for _, x := range v.Drops {
			if x.Direction == d.direction {
				dropped += x.PerSecond
			}
		}
		kind := cli.Plain
		if dropped > 0 {
			parts = append(parts, fmt.Sprintf("%5s drops/s", si(dropped)), packets)
			kind = cli.Bad
		} else {
			parts = append(parts, packets)
		}
		out = append(out, cli.Line{Text: fit(width, pad(d.name, 10), parts...), Kind: kind})
	}
	return out
}

// plane is what the data plane does, by importance: drops, workers, offloads.
func plane(v Picture, width int) (out []cli.Line) {
	if len(v.Drops) > 0 {
		var parts []string
		for _, d := range v.Drops {
			parts = append(parts, fmt.Sprintf("%s %s/s (%s)", d.Reason, si(d.PerSecond),
				map[string]string{"egress": "out", "ingress": "in", "kernel": "kernel's queue"}[d.Direction]))
		}
		out = append(out, cli.Line{Text: fit(width, pad("drops", 10), parts...), Kind: cli.Bad})
	}
	for _, d := range v.Devices {
		whose, kind := "all peers together", cli.Plain
		if !d.Overlay {
			whose = "with all else of this host"
		}
		parts := []string{"out " + d.Out.bits() + " bit/s", "in " + d.In.bits() + " bit/s"}
		if number(d.Lost) > 0 {
			parts, kind = append(parts, si(*d.Lost)+" lost/s"), cli.Bad
		}
		out = append(out, cli.Line{Text: fit(width, pad(cli.Clean(d.Name), 10), append(parts,
			"("+whose+")")...), Kind: kind})
	}
	if len(v.Workers) > 0 {
		var parts []string
		for i, w := range v.Workers {
			parts = append(parts, fmt.Sprintf("%d: %s %s/%s", i, cli.Share(w.Load), some(w.PerRead),
				some(w.PerWrite)))
		}
		out = append(out, cli.Line{Text: fit(width, pad("workers", 10), append(parts,
			"(load, packets a read/a write)")...)})
	}
	var on, off []string
	for _, o := range v.Offloads {
		if o.State == "on" {
			on = append(on, o.Name+" "+some(o.PerCall))
		} else if o.State == "lost" {
			off = append(off, o.Name+" LOST")
		}
	}
	if all := append(off, on...); len(all) > 0 {
		out = append(out, cli.Line{Text: fit(width, pad("offloads", 10), append(all, "(packets a call)")...)})
	}
	return out
}

// fit joins the parts that fit behind the first, which is there in any case. They are in order of importance.
func fit(width int, first string, parts ...string) string {
	line := first
	for _, p := range parts {
		next := line + "  " + p
		if width > 0 && utf8.RuneCountInString(next) > width {
			break
		}
		line = next
	}
	return line
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// si prints a number with three digits that matter, in five letters at most: 0, 3.2, 123, 12.3k, 9.41G.
func si(f float64) string {
	unit := ""
	for _, next := range []string{"k", "M", "G", "T", "P"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, next
	}
	switch {
	case f == 0:
		return "0"
	case f < 0.05:
		return "<0.1"
	case unit == "" && f >= 9.95, f >= 99.95:
		return fmt.Sprintf("%.0f%s", f, unit)
	case unit == "", f >= 9.995:
		return fmt.Sprintf("%.1f%s", f, unit)
	}
	return fmt.Sprintf("%.2f%s", f, unit)
}

// bits is "-" for a rate that is not known, as packets is.
func (r *Rate) bits() string {
	if r == nil {
		return "-"
	}
	return si(r.Bits)
}

func (r *Rate) packets() string {
	if r == nil {
		return "-"
	}
	return si(r.Packets)
}

func some(f *float64) string {
	if f == nil {
		return "-"
	}
	return si(*f)
}

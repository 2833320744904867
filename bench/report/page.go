package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// page is what the HTML page shows (pagehtml.go).
type page struct {
	Doc        *Document
	Date, Took string
	Settings   string
	Glance     []glanceRow
	Sections   []section
	All        []figureGroup
}

// glanceRow is the row of a measure. If only Wire is set, it is the heading above the measures on that wire.
type glanceRow struct {
	Title, Unit string
	Wire        string
	Cells       []cell
}

// cell shows one rung's result: the ratio, coloured, with the value below it, or the value alone.
type cell struct{ Ratio, Value, Class string }

type section struct {
	ID, Title, Text string
	Cards           []card
}

// card has bars, a chart or a table.
type card struct {
	Title  string
	Bars   []bar
	Legend []legendEntry
	Chart  markup
	Table  *grid
	// Wide makes the card take the page's whole width.
	Wide bool
}

type grid struct {
	Head []string
	Rows [][]string
}

type legendEntry struct {
	Name, Colour string
	Mark         markup
}

// bar is a bar that the style sheet draws. Its numbers are percent of the track's width.
type bar struct {
	Name, About, Colour, Value, Also    string
	Width, Part, Reference, Low, Spread float64
	// Cut says that the bar would be longer than its track.
	Cut bool
}

// figureGroup has the rows of one measure.
type figureGroup struct {
	Title, Key string
	Rows       []figureRow
}

type figureRow struct{ Rung, Median, Range, Ratio, RatioRange, Also string }

// WriteHTML writes the page. To be shown it needs no script, no font and no network.
func (d *Document) WriteHTML(w io.Writer) error {
	s := d.Settings
	p := page{
		Doc: d, Date: d.Started.Format("2006-01-02 15:04 MST"),
		Took: time.Duration(d.Seconds * float64(time.Second)).Round(time.Second).String(),
		Settings: fmt.Sprintf("%s, the frame sizes in %d of them, and %d of ping-pong; TCP %g s, a trial of a packet rate %g s, a ping-pong %g s; a rate counts that lost less than %g %%",
			plural(s.Rounds, "round"), s.SweepRounds, s.PingRounds, s.TCPSeconds, s.TrialSeconds, s.PingSeconds, 100*s.LossLimit),
		Glance: d.glance(), Sections: d.sections(), All: d.figureGroups(),
	}
	if _, err := io.WriteString(w, p.html()); err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	return nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (d *Document) styleOf(rung string) style {
	return styleOf(rung, slices.IndexFunc(d.Rungs, func(r Rung) bool { return r.Name == rung }))
}

func legend(curves []curve) (l []legendEntry) {
	for _, c := range curves {
		e := legendEntry{Name: c.rung, Colour: c.style.Colour}
		if c.dots {
			e.Mark = markup(c.style.drawMark(11, 6))
		}
		l = append(l, e)
	}
	return l
}

// glance returns a row for each measure, but of the frame sizes only the smallest and the largest.
func (d *Document) glance() (rows []glanceRow) {
	wire := ""
	for i := range d.Measures {
		m := &d.Measures[i]
		if d.between(m) {
			continue
		}
		if m.Wire != "" && m.Wire != wire {
			wire = m.Wire
			rows = append(rows, glanceRow{Wire: d.wire(wire)})
		}
		row := glanceRow{Title: m.short(), Unit: inWords(m.unit())}
		for _, rung := range d.Rungs {
			r := m.Result(rung.Name)
			if r == nil {
				row.Cells = append(row.Cells, cell{Value: m.nothing(rung.Name)})
				continue
			}
			c := cell{Value: figure(r.Figures[0].Median)}
			if r.Ratio != nil && rung.Name != d.Reference {
				c.Ratio, c.Class = verdict(r.Ratio.Median, r.Figures[0].MoreIsBetter)
			}
			row.Cells = append(row.Cells, c)
		}
		rows = append(rows, row)
	}
	return rows
}

// wire describes the wire of that name in words.
func (d *Document) wire(name string) string {
	for _, w := range d.Wires {
		if w.Name == name {
			return fmt.Sprintf("Wire %s: %s", w.Name, w.About)
		}
	}
	return "Wire " + name
}

// titled returns the measure's title with the wire.
func (m *Measure) titled() string {
	if m.Wire == "" {
		return m.Title
	}
	return m.Title + " – wire " + m.Wire
}

// verdict returns the ratio with a sign that says whether it is good or bad, and a class of the style sheet.
func verdict(ratio float64, moreIsBetter bool) (text, class string) {
	gain := ratio
	if !moreIsBetter && ratio > 0 {
		gain = 1 / ratio
	}
	text = fmt.Sprintf("%.2f", ratio)
	switch {
	case gain >= 1.25:
		return "▲ " + text, "best"
	case gain > 1.05:
		return "▲ " + text, "better"
	case gain >= 0.95:
		return "≈ " + text, ""
	case gain > 0.8:
		return "▼ " + text, "worse"
	}
	return "▼ " + text, "worst"
}

// between says whether there is a measure of the kind with smaller frames, and one with larger ones.
func (d *Document) between(m *Measure) bool {
	smaller, larger := false, false
	for _, o := range d.Measures {
		smaller = smaller || o.Wire == m.Wire && o.Kind == m.Kind && o.Frame < m.Frame
		larger = larger || o.Wire == m.Wire && o.Kind == m.Kind && o.Frame > m.Frame
	}
	return smaller && larger
}

// short returns a title that leaves room for the columns.
func (m *Measure) short() string {
	super := ""
	if m.Kind == Super || strings.Contains(m.Key, "send=segment") {
		super = ", superpackets"
	}
	switch m.Kind {
	case TCP:
		return "TCP, " + plural(m.Streams, "stream")
	case Costs:
		return "cost of TCP, " + plural(m.Streams, "stream")
	case Packets:
		return fmt.Sprintf("UDP, %d bytes%s", m.Payload, super)
	case Mixed:
		return "UDP, 1000 flows, mixed sizes"
	case Frames, Super:
		return fmt.Sprintf("UDP, frames of %d%s", m.Frame, super)
	case PingPong:
		return "TCP ping-pong, " + placement(m)
	case Memory:
		return "the daemon’s memory"
	}
	return m.Title
}

// inWords spells out a unit of benchstat's.
func inWords(unit string) string {
	switch unit {
	case "cpu-s/GB":
		return "CPU seconds a gigabyte"
	case "us-rtt-p50":
		return "µs, median"
	case "MiB-resident":
		return "MiB resident"
	}
	return unit
}

func (d *Document) figureGroups() (groups []figureGroup) {
	for _, m := range d.Measures {
		g := figureGroup{Title: m.titled(), Key: strings.TrimPrefix(m.Key, "measure=")}
		for _, r := range m.Results {
			f := r.Figures[0]
			row := figureRow{Rung: r.Rung, Median: figure(f.Median) + " " + f.Unit, Range: figure(f.Min) + " – " + figure(f.Max), Ratio: "–", RatioRange: "–"}
			if r.Ratio != nil {
				row.Ratio, row.RatioRange = fmt.Sprintf("%.2f", r.Ratio.Median), fmt.Sprintf("%.2f – %.2f", r.Ratio.Min, r.Ratio.Max)
			}
			var also []string
			for _, f := range r.Figures[1:] {
				also = append(also, figure(f.Median)+" "+f.Unit)
			}
			if missed := m.missed(&r); missed != "" {
				also = append(also, missed)
			}
			row.Also = strings.Join(also, ", ")
			g.Rows = append(g.Rows, row)
		}
		for _, gap := range m.empty() {
			g.Rows = append(g.Rows, figureRow{Rung: gap.Rung, Median: "gap", Range: "–", Ratio: "–", RatioRange: "–", Also: gap.Reason})
		}
		groups = append(groups, g)
	}
	return groups
}

package report

import (
	_ "embed" // the page's form and style
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.css
var pageStyle string

//go:embed page.html
var pageForm string

// page is what the HTML page shows.
type page struct {
	*Document
	Style           template.CSS
	Date, Took, How string
	Columns         int // of the table at a glance
	Glance          []glanceRow
	Sections        []section
	Missing         []string
}

// glanceRow is the row of a measure. If only Wire is set, it is the heading above the measures on that wire.
type glanceRow struct {
	Title, Unit string
	Wire        string
	Cells       []cell
}

// cell shows one rung's result: the ratio, coloured, with the value below it, or the value alone.
type cell struct{ Ratio, Value, Class string }

// section has a card for each measure and figure, and a card a bar for each rung.
type section struct {
	Title, Text string
	figures     []string // the names of those that it shows
	Cards       []card
}

type card struct {
	*Measure
	Bars []bar
}

// bar's numbers are percent of its track's width.
type bar struct {
	Name, About, Value, Also      string
	Colour                        int // of a class of the style sheet
	Width, Reference, Low, Spread float64
	// Cut says that the bar would be longer than its track.
	Cut bool
}

// WriteHTML writes the page. To be shown it needs no script, no font and no network.
func (d *Document) WriteHTML(w io.Writer) error {
	s := d.Settings
	p := page{
		Document: d, Style: template.CSS(pageStyle), Date: d.Started.Format("2006-01-02 15:04 MST"),
		Took: time.Duration(d.Seconds * float64(time.Second)).Round(time.Second).String(),
		How: fmt.Sprintf("%s, the frame sizes in %d of them, and %d of ping-pong; TCP %g s, a trial of a packet "+
			"rate %g s, a ping-pong %g s; a rate counts that lost less than %g %%",
			plural(s.Rounds, "round"), s.SweepRounds, s.PingRounds, s.TCPSeconds, s.TrialSeconds, s.PingSeconds,
			100*s.LossLimit),
		Columns: len(d.Rungs) + 1, Glance: d.glance(), Sections: d.sections(),
		Missing: d.gaps(),
	}
	form, err := template.New("page").Parse(pageForm)
	if err == nil {
		err = form.Execute(w, p)
	}
	if err != nil {
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

// sections returns those of which something was measured.
func (d *Document) sections() (shown []section) {
	bars := "Bars are medians, the whiskers reach from the lowest to the highest round"
	if d.Reference != "" {
		bars += "; the dashed line is " + d.Reference
	}
	for _, s := range []section{
		{Title: "TCP throughput", Text: "Bulk data in one direction. " + bars + ".",
			figures: []string{"throughput_gigabits_per_second"}},
		{Title: "Packet rates", Text: fmt.Sprintf("The highest rate that lost less than %g %%, found by trials. "+
			"Sizes of frames are of Ethernet on the pod's link with check sequence.", 100*d.Settings.LossLimit),
			figures: []string{"delivered_kilopackets_per_second"}},
		{Title: "Latency", Text: "Round trips of a small message on one TCP connection, one at a time: the median " +
			"of the rounds' medians. A virtual machine's figures depend on whether a CPU slept when it was woken.",
			figures: []string{"round_trip_p50_microseconds"}},
		{Title: "Latency, 99th percentile", Text: "Of 100 round trips the last but one.",
			figures: []string{"round_trip_p99_microseconds"}},
		{Title: "Processor time", Text: "Of the whole machine for 10⁹ bytes of TCP payload, both ends included. " +
			"Less is better.", figures: []string{"cpu_seconds_per_gigabyte"}},
		{Title: "Processor time of the daemons", Text: "For 10⁹ bytes of TCP payload. Less is better.",
			figures: []string{WeftdCPU, DaemonCPU}},
		{Title: "Memory", Text: "Resident in the daemon of the receiving node, which has no store inside, after " +
			"the round's load.", figures: []string{"resident_mebibytes"}},
	} {
		for _, figure := range s.figures {
			for i := range d.Measures {
				m := &d.Measures[i]
				if bars := d.bars(m, figure); len(bars) > 0 {
					s.Cards = append(s.Cards, card{m, bars})
				}
			}
		}
		if len(s.Cards) > 0 {
			shown = append(shown, s)
		}
	}
	return shown
}

// farthest is how many times as long as the reference a bar can be drawn.
const farthest = 4

// bars returns those of a measure's figure of that name, none if nothing has it.
func (d *Document) bars(m *Measure, name string) (l []bar) {
	scale, reference := 0.0, 0.0
	for i := range m.Results {
		if f := m.Results[i].Figure(name); f != nil {
			scale = max(scale, f.Max)
			if m.Results[i].Rung == d.Reference {
				reference = f.Median
			}
		}
	}
	if scale == 0 {
		return nil
	}
	// If a card had room for a rung that is far off, nothing could be seen of the others.
	if limit := farthest * reference; reference > 0 {
		scale = min(scale, limit)
	}
	percent := func(v float64) float64 { return min(100*v/scale, 100) }
	for i, rung := range d.Rungs {
		b := bar{Name: rung.Name, About: rung.About, Colour: i % 8, Value: "gap"}
		r := m.Result(rung.Name)
		if r == nil && m.nothing(rung.Name) == "gap" {
			l = append(l, b)
		}
		if r == nil || r.Figure(name) == nil {
			continue
		}
		f := r.Figure(name)
		b.Value, b.Cut = figure(f.Median)+" "+f.Unit, f.Median > scale
		b.Width, b.Reference, b.Low, b.Spread = percent(f.Median), percent(reference), percent(f.Min),
			percent(f.Max)-percent(f.Min)
		if len(f.Rounds) > 1 {
			b.Also = fmt.Sprintf("(%s – %s)", figure(f.Min), figure(f.Max))
		}
		if r.Ratio != nil && name == r.Figures[0].Name && rung.Name != d.Reference {
			b.Also += fmt.Sprintf(" · %.2f × %s", r.Ratio.Median, d.Reference)
		}
		b.Also += " " + m.missed(r)
		l = append(l, b)
	}
	return l
}

// glance returns a row for each measure.
func (d *Document) glance() (rows []glanceRow) {
	wire := ""
	for i := range d.Measures {
		m := &d.Measures[i]
		if m.Wire != wire {
			wire = m.Wire
			rows = append(rows, glanceRow{Wire: "Wire " + wire})
		}
		row := glanceRow{Title: m.Title, Unit: m.unit()}
		for _, rung := range d.Rungs {
			c := cell{Value: m.nothing(rung.Name)}
			if r := m.Result(rung.Name); r != nil {
				c.Value = figure(r.Figures[0].Median)
				if r.Ratio != nil && rung.Name != d.Reference {
					c.Ratio, c.Class = verdict(r.Ratio.Median, r.Figures[0].MoreIsBetter)
				}
			}
			row.Cells = append(row.Cells, c)
		}
		rows = append(rows, row)
	}
	return rows
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

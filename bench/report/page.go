package report

import (
	_ "embed" // the page's form and style
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"weft/tunnel"
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
	Cards       []card
}

type card struct {
	Title string
	Bars  []bar
}

// bar's numbers are percent of its track's width.
type bar struct {
	Name, About, Colour, Value, Also string
	Width, Reference, Low, Spread    float64
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
	form, err := template.New("page").Funcs(template.FuncMap{
		"titled": (*Measure).titled, "rows": (*Measure).rows, "join": strings.Join,
		"key": func(m *Measure) string { return strings.TrimPrefix(m.Key, "measure=") },
	}).Parse(pageForm)
	if err != nil {
		return fmt.Errorf("write HTML: %w", err)
	}
	if err := form.Execute(w, p); err != nil {
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

// colour returns a class of the style sheet. It is fixed for each rung that is known, so that two pages can
// be compared.
func (d *Document) colour(rung string) string {
	known := []string{"veth", "host-gw", "vxlan", tunnel.PathPortable.String(), tunnel.PathSocket.String(),
		tunnel.PathRaw.String(), "auto", "wireguard-go"}
	i := slices.Index(known, rung)
	if i < 0 {
		i = (slices.IndexFunc(d.Rungs, func(r Rung) bool { return r.Name == rung }) + 4) % 7
	}
	return fmt.Sprintf("k%d", i)
}

// sections returns the page's bars, kind by kind; a kind that was not measured has none.
func (d *Document) sections() (l []section) {
	bars := "Bars are medians, the whiskers reach from the lowest to the highest round"
	if d.Reference != "" {
		bars += "; the dashed line is " + d.Reference
	}
	add := func(title, text string, cards []card) {
		if len(cards) > 0 {
			l = append(l, section{title, text, cards})
		}
	}
	rate := fmt.Sprintf("The highest rate that lost less than %g %%, found by trials. ",
		100*d.Settings.LossLimit)
	add("TCP throughput", "Bulk data in one direction. "+bars+".",
		d.cards("throughput_gigabits_per_second", TCP))
	add("Packet rates", rate+bars+".", d.cards("delivered_kilopackets_per_second", Packets, Mixed))
	add("Packet rate by frame size", "Datagrams of one flow, in the manner of RFC 2544. Sizes are of Ethernet "+
		"frames on the pod's link with check sequence. "+rate,
		d.cards("delivered_kilopackets_per_second", Frames, Super))
	add("Latency", "Round trips of a small message on one TCP connection, one at a time: the median of the "+
		"rounds' medians. A virtual machine's figures depend on whether a CPU slept when it was woken.",
		d.cards("round_trip_p50_microseconds", PingPong))
	add("Latency, 99th percentile", "Of 100 round trips the last but one.",
		d.cards("round_trip_p99_microseconds", PingPong))
	add("Processor time", "Of the whole machine for 10⁹ bytes of TCP payload, both ends included. Less is "+
		"better.", d.cards("cpu_seconds_per_gigabyte", TCP))
	add("Processor time of the daemons", "For 10⁹ bytes of TCP payload. Less is better.",
		append(d.cards(WeftdCPU, TCP), d.cards(DaemonCPU, TCP)...))
	add("Memory", "Resident in the daemon of the receiving node, which has no store inside, after the round's "+
		"load.", d.cards("resident_mebibytes", Memory))
	return l
}

// cards returns a card for each measure of the kinds, with the figure of that name.
func (d *Document) cards(name string, kinds ...Kind) (l []card) {
	for i := range d.Measures {
		if m := &d.Measures[i]; slices.Contains(kinds, m.Kind) {
			if bars := d.bars(m, name); len(bars) > 0 {
				l = append(l, card{Title: m.titled(), Bars: bars})
			}
		}
	}
	return l
}

// farthest is how many times as long as the reference a bar can be drawn.
const farthest = 4

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
	for _, rung := range d.Rungs {
		b := bar{Name: rung.Name, About: rung.About, Colour: d.colour(rung.Name), Value: "gap"}
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
		l = append(l, b)
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

// placement says in words on which CPUs the ends ran.
func placement(m *Measure) string {
	if m.Placement == "any" {
		return "not pinned"
	}
	if from, to, _ := strings.Cut(m.Placement, ","); from == to {
		return "both pinned to CPU " + from
	}
	return "pinned to CPUs " + strings.ReplaceAll(m.Placement, ",", " and ")
}

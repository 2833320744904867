package report

import (
	"fmt"
	"slices"
	"strings"
)

// sections returns the page's plots, kind by kind; a kind that was not measured has none.
func (d *Document) sections() (l []section) {
	add := func(s section) {
		if len(s.Cards) > 0 {
			l = append(l, s)
		}
	}
	bars := "Bars are medians, the whiskers reach from the lowest to the highest round"
	if d.Reference != "" {
		bars += "; the dashed line is " + d.Reference
	}
	add(section{"tcp", "TCP throughput", "Bulk data in one direction. " + bars + ".", d.barCards("throughput_gigabits_per_second", nil, TCP)})
	add(section{"packets", "Packet rates", fmt.Sprintf("The highest rate that lost less than %g %%, found by trials. %s.", 100*d.Settings.LossLimit, bars),
		d.barCards("delivered_kilopackets_per_second", nil, Packets, Mixed)})
	add(section{"frames", "Packet rate by frame size", "Datagrams of one flow, in the manner of RFC 2544. Sizes are of Ethernet frames on the pod's link with check sequence; on the axis they are evenly spaced. Vertical strokes reach from the lowest to the highest round.",
		d.frameCards()})
	add(section{"latency", "Latency", "Round trips of a small message on one TCP connection, one at a time, of all rounds together. A virtual machine's figures depend on whether a CPU slept when it was woken.", d.latencyCards()})
	add(section{"cpu", "Processor time", "Of the whole machine for 10⁹ bytes of TCP payload, both ends included; hatched is what the daemons used of it. Less is better.",
		d.barCards("cpu_seconds_per_gigabyte", []string{WeftdCPU, DaemonCPU}, TCP)})
	add(section{"costs", "What a gigabyte costs", "TCP once more, while perf events count; they cost a little themselves, so the throughput above is measured without. Reads and sends are system calls of the nodes' daemons; a packet is one of the overlay's full size, whether it crosses in a superpacket or alone, and what acknowledgements cost is part of it.",
		d.costCards()})
	add(section{"memory", "Memory", "Resident in the daemon of the receiving node, which has no store inside, after the round's load.", d.barCards("resident_mebibytes", nil, Memory)})
	return l
}

// barCards returns a card for each measure of the kinds, with the figure of that name. parts are
// names of figures that are a part of that figure; a rung has at most one of them.
func (d *Document) barCards(name string, parts []string, kinds ...Kind) (l []card) {
	for _, k := range kinds {
		for i := range d.Measures {
			if m := &d.Measures[i]; m.Kind == k {
				if bars := d.bars(m, name, parts); len(bars) > 0 {
					l = append(l, card{Title: m.titled(), Bars: bars})
				}
			}
		}
	}
	return l
}

// costCards returns a card for each measure, with a table that has a column for each figure.
func (d *Document) costCards() (l []card) {
	for i := range d.Measures {
		m := &d.Measures[i]
		if m.Kind != Costs {
			continue
		}
		t := &grid{Head: []string{"rung"}}
		var names []string
		for _, r := range m.Results {
			for _, f := range r.Figures {
				if !slices.Contains(names, f.Name) {
					names = append(names, f.Name)
					t.Head = append(t.Head, strings.ReplaceAll(f.Name, "_", " "))
				}
			}
		}
		for i := range m.Results {
			r := &m.Results[i]
			row := []string{r.Rung}
			for _, name := range names {
				text := "–"
				if f := r.Figure(name); f != nil {
					text = figure(f.Median)
				}
				row = append(row, text)
			}
			t.Rows = append(t.Rows, row)
		}
		l = append(l, card{Title: m.titled(), Table: t, Wide: true})
	}
	return l
}

// farthest is how many times as long as the reference a bar can be drawn.
const farthest = 4

func (d *Document) bars(m *Measure, name string, parts []string) (l []bar) {
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
	// If a chart had room for a rung that is far off, nothing could be seen of the others.
	if limit := farthest * reference; reference > 0 {
		scale = min(scale, limit)
	}
	percent := func(v float64) float64 { return min(100*v/scale, 100) }
	for _, rung := range d.Rungs {
		r := m.Result(rung.Name)
		if r == nil && m.nothing(rung.Name) == "gap" {
			l = append(l, bar{Name: rung.Name, About: rung.About, Colour: d.styleOf(rung.Name).Colour, Value: "gap"})
		}
		if r == nil || r.Figure(name) == nil {
			continue
		}
		f := r.Figure(name)
		b := bar{
			Name: rung.Name, About: rung.About, Colour: d.styleOf(rung.Name).Colour, Value: figure(f.Median) + " " + f.Unit,
			Width: percent(f.Median), Reference: percent(reference), Low: percent(f.Min), Spread: percent(f.Max) - percent(f.Min),
			Cut: f.Median > scale,
		}
		if len(f.Rounds) > 1 {
			b.Also = fmt.Sprintf("(%s – %s)", figure(f.Min), figure(f.Max))
		}
		if r.Ratio != nil && name == r.Figures[0].Name && rung.Name != d.Reference {
			b.Also += fmt.Sprintf(" · %.2f × %s", r.Ratio.Median, d.Reference)
		}
		for _, part := range parts {
			p := r.Figure(part)
			if p == nil {
				continue
			}
			if !b.Cut {
				b.Part = percent(min(p.Median, f.Median))
			}
			who, _, _ := strings.Cut(part, "_")
			b.Also += fmt.Sprintf(" · %s %s", who, figure(p.Median))
		}
		l = append(l, b)
	}
	return l
}

// frameCards returns charts of packet rates by frame size, with a line for each rung.
func (d *Document) frameCards() (l []card) {
	if len(d.Wires) == 0 {
		return d.frameCardsOn("")
	}
	for _, w := range d.Wires {
		l = append(l, d.frameCardsOn(w.Name)...)
	}
	return l
}

func (d *Document) frameCardsOn(wire string) (l []card) {
	flow := "One flow"
	if wire != "" {
		flow = "Wire " + wire + ", one flow"
	}
	for _, k := range []struct {
		kind Kind
		what string
	}{{Frames, "a system call each"}, {Super, "sent as superpackets"}} {
		var all []*Measure
		for i := range d.Measures {
			if d.Measures[i].Kind == k.kind && d.Measures[i].Wire == wire {
				all = append(all, &d.Measures[i])
			}
		}
		byFrame(all)
		if len(all) == 0 {
			continue
		}
		within := fmt.Sprintf("less than %g %% lost", 100*d.Settings.LossLimit)
		lossy, lossless := d.frameCurves(all, "delivered_kilopackets_per_second"), d.frameCurves(all, "lossless_kilopackets_per_second")
		if same(lossy, lossless) {
			l = append(l, frameCard(all, lossy, fmt.Sprintf("%s, %s, %s (and no less with nothing lost)", flow, k.what, within)))
			continue
		}
		l = append(l, frameCard(all, lossy, fmt.Sprintf("%s, %s, %s", flow, k.what, within)),
			frameCard(all, lossless, fmt.Sprintf("%s, %s, nothing lost", flow, k.what)))
	}
	return l
}

func frameCard(all []*Measure, curves []curve, title string) card {
	y := linear(most(curves, func(p point) float64 { return max(p.y, p.high) }), "thousand packets a second")
	return card{Title: title, Legend: legend(curves), Chart: draw(frameAxis(all), y, curves, title+", by frame size")}
}

// same says whether the curves have the same medians.
func same(a, b []curve) bool {
	return slices.EqualFunc(a, b, func(a, b curve) bool {
		return slices.EqualFunc(a.points, b.points, func(a, b point) bool { return a.y == b.y })
	})
}

// frameAxis spaces the sizes evenly, since on a logarithmic axis the large ones would crowd.
func frameAxis(all []*Measure) axis {
	a := axis{to: float64(len(all)) - 0.5, from: -0.5, title: "bytes in a frame"}
	for i, m := range all {
		a.ticks = append(a.ticks, tick{float64(i), fmt.Sprint(m.Frame)})
	}
	return a
}

func (d *Document) frameCurves(all []*Measure, name string) (l []curve) {
	for _, rung := range d.Rungs {
		c := curve{rung: rung.Name, style: d.styleOf(rung.Name), dots: true}
		for i, m := range all {
			r := m.Result(rung.Name)
			if r == nil || r.Figure(name) == nil {
				continue
			}
			f := r.Figure(name)
			note := fmt.Sprintf("%s, frames of %d bytes: %s thousand packets a second", rung.Name, m.Frame, figure(f.Median))
			c.points = append(c.points, point{x: float64(i), y: f.Median, low: f.Min, high: f.Max, note: note})
		}
		if len(c.points) > 0 {
			l = append(l, c)
		}
	}
	return l
}

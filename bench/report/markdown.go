package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the medians as a table for a document. It has a row for each measure, and for
// each wire a block of columns, one for each rung. Beside a median stands the ratio to the
// reference on the same wire, with the lowest and the highest of the rounds.
func (d *Document) WriteMarkdown(w io.Writer) error {
	wires := d.Wires
	if len(wires) == 0 {
		wires = []Wire{{}}
	}
	head, rule := "| |", "|---|"
	for _, wire := range wires {
		for i, r := range d.Rungs {
			name := r.Name
			if i == 0 && wire.Name != "" {
				name = "**wire " + wire.Name + "**: " + name
			}
			head, rule = head+" "+name+" |", rule+"--:|"
		}
	}
	rows := []string{head, rule}
	for i := range d.Measures {
		if m := &d.Measures[i]; m.Wire == wires[0].Name {
			rows = append(rows, d.markdownRow(m, wires))
		}
	}
	if _, err := io.WriteString(w, strings.Join(rows, "\n")+"\n"); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}

// markdownRow returns the row of a measure, with its results on all wires.
func (d *Document) markdownRow(m *Measure, wires []Wire) string {
	row := fmt.Sprintf("| %s |", strings.TrimSuffix(m.Title+", "+m.unit(), ", "))
	for _, wire := range wires {
		var there *Measure
		for i := range d.Measures {
			if o := &d.Measures[i]; o.Wire == wire.Name && o.name() == m.name() {
				there = o
			}
		}
		for _, rung := range d.Rungs {
			row += " " + d.markdownCell(there, rung.Name) + " |"
		}
	}
	return row
}

func (d *Document) markdownCell(m *Measure, rung string) string {
	if m == nil {
		return "–"
	}
	if m.Result(rung) == nil {
		return m.nothing(rung)
	}
	r := m.Result(rung)
	text := figure(r.Figures[0].Median)
	if p99 := r.Figure("round_trip_p99_microseconds"); p99 != nil {
		text += " / " + figure(p99.Median)
	}
	if r.Ratio == nil || rung == d.Reference {
		return text
	}
	return fmt.Sprintf("%s: **%.2f** (%.2f–%.2f)", text, r.Ratio.Median, r.Ratio.Min, r.Ratio.Max)
}

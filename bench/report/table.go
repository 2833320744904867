package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable sums the rounds up. For each measure and rung it writes the median with the lowest and
// the highest value, the ratio to the reference likewise, and the medians of the other figures. Every
// gap follows with its reason, and then the notes.
func (d *Document) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", d.Topology)
	fmt.Fprintf(w, "machine: %s\n", d.Machine)
	if d.Far != nil {
		fmt.Fprintf(w, "other end: %s\n", *d.Far)
	}
	fmt.Fprintf(w, "%s; %s; %s\n\n", d.Started.Format("2006-01-02 15:04 MST"),
		time.Duration(d.Seconds*float64(time.Second)).Round(time.Second), d.Machine.Load())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	ratio := ""
	if d.Reference != "" {
		ratio = "RATIO TO " + strings.ToUpper(d.Reference) + "\tMIN–MAX\t"
	}
	wire := ""
	if len(d.Wires) > 0 {
		wire = "WIRE\t"
	}
	fmt.Fprintf(t, wire+"MEASURE\tRUNG\tMEDIAN\tMIN–MAX\t%sALSO\n", ratio)
	for i := range d.Measures {
		m := &d.Measures[i]
		name, wire := m.name(), m.Wire+"\t"
		if len(d.Wires) == 0 {
			wire = ""
		}
		for _, rung := range d.Rungs {
			row := m.row(rung.Name, d.Reference != "")
			if row == "" {
				continue
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\n", wire, name, rung.Name, row)
			name, wire = "", strings.Repeat("\t", min(1, len(wire)))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	gaps := d.gaps()
	if len(gaps)+len(d.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, gap := range gaps {
		fmt.Fprintf(w, "gap: %s\n", gap)
	}
	for _, note := range d.Notes {
		if _, err := fmt.Fprintf(w, "note: %s\n", note); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	return nil
}

// name is what a table calls the measure: its key without the wire, which has a column of its own.
func (m *Measure) name() string {
	name := strings.TrimPrefix(m.Key, "measure=")
	if m.Wire != "" {
		name = strings.TrimSuffix(name, "/wire="+m.Wire)
	}
	return name
}

// row has the columns of a rung's result behind its name, or is empty if the rung has neither a result nor a
// gap.
func (m *Measure) row(rung string, ratios bool) string {
	r := m.Result(rung)
	if r == nil {
		if m.nothing(rung) != "gap" {
			return ""
		}
		return "gap\t-\t" + strings.Repeat("-\t", map[bool]int{true: 2}[ratios])
	}
	f := &r.Figures[0]
	s := fmt.Sprintf("%s %s\t%s–%s\t", figure(f.Median), f.Unit, figure(f.Min), figure(f.Max))
	switch {
	case r.Ratio != nil:
		s += fmt.Sprintf("%.2f\t%.2f–%.2f\t", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max)
	case ratios:
		s += "-\t-\t"
	}
	var also []string
	for _, f := range r.Figures[1:] {
		also = append(also, figure(f.Median)+" "+f.Unit)
	}
	if missed := m.missed(r); missed != "" {
		also = append(also, missed)
	}
	return s + strings.Join(also, "  ")
}

// String describes the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("Linux %s, %d CPUs (%s), %s, %s", m.Kernel, m.CPUs, m.Model, m.Go, m.Privilege)
}

// Load says how busy the machine was, and so what else ran there.
func (m Machine) Load() string {
	if m.LoadAfter == "" {
		return "loadavg " + m.LoadBefore
	}
	return fmt.Sprintf("loadavg %s before, %s after; CPUs busy %.0f %%, stolen by the host's other guests "+
		"%.1f %%",
		m.LoadBefore, m.LoadAfter, 100*m.Busy, 100*m.Stolen)
}

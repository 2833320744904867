package report

import (
	"cmp"
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
		name, wire := m.name(), m.Wire
		for _, r := range m.rows() {
			if len(d.Wires) > 0 {
				fmt.Fprintf(t, "%s\t", wire)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t", name, r.Rung, r.Median, cmp.Or(r.Range, "-"))
			if d.Reference != "" {
				fmt.Fprintf(t, "%s\t%s\t", cmp.Or(r.Ratio, "-"), cmp.Or(r.RatioRange, "-"))
			}
			fmt.Fprintln(t, strings.Join(r.Also, "  "))
			name, wire = "", ""
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

// row is what was measured on one rung, in words. What there is not is empty.
type row struct {
	Rung, Median, Range, Ratio, RatioRange string
	// Also has the medians of the other figures. Gap says why nothing was measured.
	Also []string
	Gap  string
}

// rows returns one for each rung that has a result, and then one for each that has only gaps.
func (m *Measure) rows() (l []row) {
	for i := range m.Results {
		r := &m.Results[i]
		f := &r.Figures[0]
		one := row{Rung: r.Rung, Median: figure(f.Median) + " " + f.Unit,
			Range: figure(f.Min) + "–" + figure(f.Max)}
		if r.Ratio != nil {
			one.Ratio = fmt.Sprintf("%.2f", r.Ratio.Median)
			one.RatioRange = fmt.Sprintf("%.2f–%.2f", r.Ratio.Min, r.Ratio.Max)
		}
		for _, f := range r.Figures[1:] {
			one.Also = append(one.Also, figure(f.Median)+" "+f.Unit)
		}
		if missed := m.missed(r); missed != "" {
			one.Also = append(one.Also, missed)
		}
		l = append(l, one)
	}
	for _, g := range m.empty() {
		l = append(l, row{Rung: g.Rung, Median: "gap", Gap: g.Reason})
	}
	return l
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

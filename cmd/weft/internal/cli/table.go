package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table aligns cells. Flush prints it.
type Table struct {
	out  io.Writer
	rows [][]string
	list bool
}

// NewTable is a table with that heading, or without one.
func NewTable(w io.Writer, heading ...string) *Table {
	t := &Table{out: w}
	if len(heading) > 0 {
		t.rows = [][]string{heading}
	}
	return t
}

// NewList is a table that is printed, below an empty line, only if it has rows.
func NewList(w io.Writer, heading ...string) *Table {
	t := NewTable(w, heading...)
	t.list = true
	return t
}

// Row adds a line, without the control characters that a cell may have from the store.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Clean(fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// WithoutEmpty leaves a column out that has a dash in each row.
func (t *Table) WithoutEmpty(heading string) {
	i := slices.Index(t.rows[0], heading)
	if slices.ContainsFunc(t.rows[1:], func(r []string) bool { return r[i] != "-" }) {
		return
	}
	for j, r := range t.rows {
		t.rows[j] = slices.Delete(r, i, i+1)
	}
}

// Flush prints the lines without the blanks that alignment leaves at their ends.
func (t *Table) Flush() error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	if t.list && len(t.rows) == 1 {
		return nil
	}
	if t.list {
		text.WriteByte('\n')
	}
	for _, r := range t.rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t")) // it is kept in memory
	}
	_ = w.Flush() // the same
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(t.out, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

package diag

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"weft/cmd/weft/internal/cli"
)

const (
	// pipeWidth is how wide a line may be where there is no terminal, and cellWidth that of a cell of the grid.
	pipeWidth, cellWidth = 120, 5
	// mostTroubles and mostLines are how many troubles, and nodes or pairs, are printed at the most.
	mostTroubles, mostLines = 20, 200
)

// lineWidth is how wide a line of w may be.
func lineWidth(w io.Writer) int {
	if width, terminal := cli.Columns(w); terminal {
		return width
	}
	return pipeWidth
}

// printMatrix prints r for people. With pairs it prints a line for each pair, and else a grid.
func printMatrix(w io.Writer, r *reading, pairs bool, width int) error {
	fmt.Fprintf(w, "%s, asked in %.1f s\n\n", cli.Count(len(r.Nodes), "node"), r.Took.Seconds())
	var err error
	if pairs {
		err = r.printPairs(w)
	} else {
		err = r.printGrid(w, width)
	}
	if err != nil {
		return err
	}
	r.printTroubles(w)
	if err := r.printUntold(w); err != nil {
		return err
	}
	told := 0
	for _, n := range r.Nodes {
		if n.Tells == "yes" {
			told++
		}
	}
	_, err = fmt.Fprintf(w, "%d of %s told; of %s %d well, %d in trouble, %d not known\n", told,
		cli.Count(len(r.Nodes), "node"), cli.Count(r.Pairs.All, "pair"), r.Pairs.Well, r.Pairs.Trouble,
		r.Pairs.Unknown)
	return err
}

// printGrid prints a row and a column for each node, or where these do not fit for each in trouble, or else a
// line for each in trouble.
func (r *reading) printGrid(w io.Writer, width int) error {
	all := make([]int, len(r.Nodes))
	for i := range all {
		all[i] = i
	}
	if r.gridWidth(all) <= width && r.Full {
		return r.grid(w, all)
	}
	bad := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !r.bad[i] })
	if len(bad) > 0 && len(bad) < len(all) && r.gridWidth(bad) <= width {
		fmt.Fprintf(w, "only the %s in trouble: of all there are too many for %d columns\n\n",
			cli.Count(len(bad), "node"), width)
		return r.grid(w, bad)
	}
	return r.lines(w, bad)
}

// nameWidth is how much of a node's name the grid shows, in characters.
const nameWidth = 24

func (r *reading) gridName(i int) string {
	name := r.name(i)
	if runes := []rune(name); len(runes) > nameWidth {
		name = string(runes[:nameWidth-1]) + "…"
	}
	return fmt.Sprintf("%d %s", i+1, name)
}

func (r *reading) gridWidth(nodes []int) int {
	most := 0
	for _, i := range nodes {
		most = max(most, utf8.RuneCountInString(r.gridName(i)))
	}
	return most + len(nodes)*(cellWidth+1)
}

func (r *reading) grid(w io.Writer, nodes []int) error {
	left := r.gridWidth(nodes) - len(nodes)*(cellWidth+1)
	line := strings.Repeat(" ", left)
	for _, b := range nodes {
		line += fmt.Sprintf(" %*d", cellWidth, b+1)
	}
	fmt.Fprintln(w, line)
	for _, a := range nodes {
		name := r.gridName(a)
		line := name + strings.Repeat(" ", left-utf8.RuneCountInString(name))
		for _, b := range nodes {
			line += fmt.Sprintf(" %*s", cellWidth, r.word(a, b))
		}
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprint(w, "\nwhat the row says of the column: round trip in ms, x no answer, % lost,\nmtu "+
		"large ones lost, ? not told, none not known to it\n\n")
	return err
}

// word is a cell of the grid.
func (r *reading) word(a, b int) string {
	if a == b {
		return "."
	}
	c, ok := r.worst[a][b]
	switch {
	case !ok && r.whole(a):
		return "none"
	case !ok:
		return "?"
	case c.Answers == "no":
		return "x"
	case c.Answers != "yes":
		return "?"
	case c.LargeLost:
		return "mtu"
	case c.Lossy:
		return cli.Share(cli.Larger(cli.Larger(c.LossOut, c.LossIn), c.Loss))
	}
	return roundTrip(c.RTT)
}

// roundTrip prints nanoseconds as milliseconds in five characters at the most.
func roundTrip(ns int64) string {
	switch ms := float64(ns) / 1e6; {
	case ns <= 0:
		return "ok"
	case ms < 9.95:
		return fmt.Sprintf("%.1f", ms)
	case ms < 99999:
		return fmt.Sprintf("%.0f", ms)
	}
	return "long"
}

// lines prints a line for each of nodes, and what round trips there are.
func (r *reading) lines(w io.Writer, nodes []int) error {
	var rtts []int64
	for _, seen := range r.worst {
		for _, c := range seen {
			if c.RTT > 0 {
				rtts = append(rtts, c.RTT)
			}
		}
	}
	if slices.Sort(rtts); len(rtts) > 0 && r.Full {
		fmt.Fprintf(w, "round trips from %s to %s, half of them up to %s\n\n", cli.Milliseconds(rtts[0]),
			cli.Milliseconds(rtts[len(rtts)-1]), cli.Milliseconds(rtts[len(rtts)/2]))
	}
	if len(nodes) == 0 {
		return nil
	}
	var rows [][]any
	for _, n := range nodes {
		x := r.Nodes[n]
		answering := fmt.Sprintf("%d of %d", x.Answering, x.Of)
		rows = append(rows, []any{r.name(n), answering, x.Silent, x.Lossy, x.Tells})
	}
	return printRows(w, rows, mostLines, "and %d more", "IN TROUBLE", "ANSWERED BY", "NOT BY", "LOSING", "TELLS")
}

// printRows prints a table with most rows, and how many more there are.
func printRows(w io.Writer, rows [][]any, most int, more string, heading ...string) error {
	t := cli.NewTable(w, heading...)
	for _, row := range rows[:min(most, len(rows))] {
		t.Row(row...)
	}
	if n := len(rows) - most; n > 0 {
		t.Row(fmt.Sprintf(more, n))
	}
	t.Row()
	return t.Flush()
}

// printPairs prints what each of two nodes says of the other.
func (r *reading) printPairs(w io.Writer) error {
	var rows [][]any
	for a := range r.Nodes {
		for b := range r.Nodes {
			if a != b && r.only(min(a, b), max(a, b)) {
				rows = append(rows, append([]any{r.name(a), r.name(b)}, r.saying(a, b)...))
			}
		}
	}
	return printRows(w, rows, 2*mostLines, "and %d more: --json has all", "NODE", "SAYS OF", "ANSWERS", "RTT",
		"LOSS OUT/IN", "PASSES")
}

// saying is what a says of b, in the columns of printPairs.
func (r *reading) saying(a, b int) []any {
	c, ok := r.worst[a][b]
	if !ok {
		return []any{"not told", "-", "-", "-"}
	}
	answers, rtt := c.Answers, "-"
	if c.For > 0 {
		answers += " " + cli.Span(time.Duration(min(c.For, 1<<31))*time.Second)
	}
	if c.RTT > 0 {
		rtt = cli.Milliseconds(c.RTT)
	}
	return []any{answers, rtt, cli.Losses(c.Loss, c.LossOut, c.LossIn), cli.Passes(c.PathMTU, c.LargeLost)}
}

func (r *reading) printTroubles(w io.Writer) {
	for i, t := range r.Troubles {
		if i == mostTroubles {
			fmt.Fprintf(w, "and %d more: --json has all\n\n", len(r.Troubles)-i)
			return
		}
		fmt.Fprintf(w, "%s\n  why: %s\n  to tell: %s\n\n", t.Found, t.Likely, t.Look)
	}
}

// printUntold lists the nodes that have not told all, with the reason.
func (r *reading) printUntold(w io.Writer) error {
	var rows [][]any
	for i, n := range r.Nodes {
		if n.Tells != "yes" && r.looksAt(i) {
			rows = append(rows, []any{r.name(i), cli.Join(n.Address), n.Reason})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return printRows(w, rows, mostLines, "and %d more", "NODE", "ADDRESS", "HAS NOT TOLD BECAUSE")
}

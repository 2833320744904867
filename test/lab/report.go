package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"weft/test/lab/probe"
)

// Report is what Measure measured. Its JSON form is stable; a field that has a unit has it in its name.
type Report struct {
	Lab    string `json:"lab"`
	Driver string `json:"driver"`
	Wire   string `json:"wire"`
	Attach string `json:"attach"`
	// Rootless says that the nodes' weftds were without root.
	Rootless bool            `json:"rootless"`
	Config   json.RawMessage `json:"config"`
	Nodes    int             `json:"nodes"`
	Pods     int             `json:"pods"`
	Pairs    []Pair          `json:"pairs"`
	Streams  []Stream        `json:"streams"`
}

// Pair says what became of one pod's pings to another.
type Pair struct {
	Family   int           `json:"family"`
	From     string        `json:"from"`
	To       string        `json:"to"`
	FromNode string        `json:"fromNode"`
	ToNode   string        `json:"toNode"`
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	P50      time.Duration `json:"rttP50Nanoseconds"`
	P99      time.Duration `json:"rttP99Nanoseconds"`
	Error    string        `json:"error,omitempty"`
	// RTT has all round trips, for summaries of several pairs.
	RTT []time.Duration `json:"-"`
}

// Stream says how much a TCP connection carried.
type Stream struct {
	Family        int     `json:"family"`
	From          string  `json:"from"`
	To            string  `json:"to"`
	FromNode      string  `json:"fromNode"`
	ToNode        string  `json:"toNode"`
	Bytes         int64   `json:"bytes"`
	Seconds       float64 `json:"seconds"`
	BitsPerSecond float64 `json:"bitsPerSecond"`
	Retransmits   int     `json:"retransmits"`
	Error         string  `json:"error,omitempty"`
}

// Faults returns a sentence for each pair that did not reach each other and for each stream that
// failed. Loss alone is no fault.
func (r Report) Faults() []string {
	var out []string
	for _, p := range r.Pairs {
		if p.Received > 0 {
			continue
		}
		s := fmt.Sprintf("%s does not reach %s over IPv%d: none of %d pings answered", p.From, p.To,
			p.Family, p.Sent)
		if p.Error != "" {
			s += " (" + p.Error + ")"
		}
		out = append(out, s)
	}
	for _, s := range r.Streams {
		if s.Error != "" {
			out = append(out, "TCP: "+s.Error)
		}
	}
	return out
}

// row sums up the pairs from one node's pods to another's.
type row struct {
	family         int
	from, to       string
	pairs, reached int
	sent, received int
	rtt            []time.Duration
}

func (r Report) rows() []*row {
	var rows []*row
	byKey := map[string]*row{}
	for _, p := range r.Pairs {
		key := fmt.Sprint(p.Family, p.FromNode, p.ToNode)
		w := byKey[key]
		if w == nil {
			w = &row{family: p.Family, from: p.FromNode, to: p.ToNode}
			byKey[key] = w
			rows = append(rows, w)
		}
		w.pairs++
		if p.Received > 0 {
			w.reached++
		}
		w.sent += p.Sent
		w.received += p.Received
		w.rtt = append(w.rtt, p.RTT...)
	}
	return rows
}

// WriteTable prints a line for each pair of nodes and family: how many pairs of pods
// reached each other, the loss, the round trips and, where it was measured, TCP.
func (r Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "FROM\tTO\tIP\tPODS REACHED\tLOSS\tRTT P50\tRTT P99\tTCP")
	for _, row := range r.rows() {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d of %d\t%s\t%s\t%s\t%s\n", row.from, row.to, row.family,
			row.reached, row.pairs,
			percent(row.sent-row.received, row.sent), micros(probe.Quantile(row.rtt, 0.5)),
			micros(probe.Quantile(row.rtt, 0.99)),
			r.throughput(row))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if faults := r.Faults(); len(faults) > 0 {
		const most = 10
		more := ""
		if len(faults) > most {
			more = fmt.Sprintf("\n… and %d more", len(faults)-most)
			faults = faults[:most]
		}
		_, err := fmt.Fprintf(w, "\n%s%s\n", strings.Join(faults, "\n"), more)
		return err
	}
	return nil
}

// throughput returns the goodput of the stream between the row's nodes, or a dash.
func (r Report) throughput(w *row) string {
	for _, s := range r.Streams {
		if s.Family == w.family && s.FromNode == w.from && s.ToNode == w.to {
			if s.Error != "" {
				return "failed"
			}
			return bitRate(s.BitsPerSecond)
		}
	}
	return "-"
}

func percent(part, whole int) string {
	switch {
	case whole == 0:
		return "-"
	case part == 0:
		return "0 %"
	default:
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
	}
}

func micros(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%d us", d.Microseconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func bitRate(b float64) string {
	if b >= 1e9 {
		return fmt.Sprintf("%.2f Gb/s", b/1e9)
	}
	return fmt.Sprintf("%.0f Mb/s", b/1e6)
}

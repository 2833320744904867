// Package report holds what a run of the benchmarks found, and writes it as a document in JSON, as
// tables, as lines for benchstat, and as one HTML page.
//
//	document   the schema, which its types' comments document, and how samples become medians and ratios
//	gap        what was to be measured and could not be
//	lines      writes Go's benchmark format, one line for each measurement
//	table      writes a table for a terminal
//	markdown   writes a table for a document
//	page       writes HTML with everything in it: no script, nothing from a network
//
// Nothing here measures, and nothing here needs Linux.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Schema and Version name the JSON form. Version grows when a field changes its meaning or
// goes away; a new field alone does not change it.
const (
	Schema  = "weft-bench"
	Version = 2
)

// Document is one run. The names of the fields in JSON have their units.
type Document struct {
	Schema  string `json:"schema"`
	Version int    `json:"schema_version"`
	// Tool is the version of weft, and Command how it was called.
	Tool    string    `json:"tool_version"`
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"elapsed_seconds"`
	// Topology says what lies between the two ends, in a sentence.
	Topology string  `json:"topology"`
	Machine  Machine `json:"machine"`
	// Far is the machine at the other end, if that is another one.
	Far      *Machine `json:"far_machine,omitempty"`
	Settings Settings `json:"settings"`
	// Reference is the rung to which ratios are taken; empty if there is none.
	Reference string `json:"reference_rung,omitempty"`
	Rungs     []Rung `json:"rungs"`
	// Wires are what lay between the nodes, one after the other; empty if we did not make it ourselves.
	Wires    []Wire    `json:"wires,omitempty"`
	Measures []Measure `json:"measures"`
	// Notes tell a reader what to know about the run, and what such a run cannot show.
	Notes []string `json:"notes"`
}

// Machine is where something ran.
type Machine struct {
	Hostname string `json:"hostname,omitempty"`
	Kernel   string `json:"kernel"`
	CPUs     int    `json:"cpus"`
	Model    string `json:"cpu_model"`
	Go       string `json:"go_version"`
	// Privilege is "as root" or "in a user namespace", where socket buffers are smaller.
	Privilege string `json:"privilege"`
	// Boot is the kernel's boot id, which is the same at both ends if they are on one machine.
	Boot string `json:"boot_id,omitempty"`
	// LoadBefore and LoadAfter are /proc/loadavg at the beginning and at the end.
	LoadBefore string `json:"load_average_before,omitempty"`
	LoadAfter  string `json:"load_average_after,omitempty"`
	// Busy and Stolen are shares of the processor time during the run: the share that everything on this machine
	// used, and the share that the host gave to other guests.
	Busy   float64 `json:"cpu_busy_ratio"`
	Stolen float64 `json:"cpu_stolen_ratio"`
}

// Settings say how long and how often it was measured.
type Settings struct {
	Rounds       int     `json:"rounds"`
	SweepRounds  int     `json:"sweep_rounds"` // of the frame sizes
	PingRounds   int     `json:"ping_pong_rounds"`
	TCPSeconds   float64 `json:"tcp_seconds"`
	TrialSeconds float64 `json:"trial_seconds"`
	PingSeconds  float64 `json:"ping_pong_seconds"`
	LossLimit    float64 `json:"loss_limit_ratio"`
	FrameBytes   []int   `json:"frame_bytes,omitempty"`
}

// Rung is one arrangement by which packets got from one end to the other.
type Rung struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// MTU is the largest IP packet that it carries whole.
	MTU int `json:"mtu_bytes"`
	// Once is set for a rung that is measured in the first round only: it is shown beside the
	// others, and has no ratios.
	Once bool `json:"measured_once,omitempty"`
}

// Wire is what lies between the nodes: which superpackets cross it whole.
type Wire struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// Kind says what sort of thing a measure measures.
type Kind string

// The kinds. A page draws each in its own way.
const (
	TCP      Kind = "tcp"      // bulk data over one or more streams
	Packets  Kind = "packets"  // the highest rate of small datagrams in one flow within the loss limit
	Mixed    Kind = "mixed"    // the same for many flows and mixed sizes
	Frames   Kind = "frames"   // the same for one flow and one size of frame
	Super    Kind = "super"    // the same as frames, sent as superpackets (UDP_SEGMENT)
	PingPong Kind = "pingpong" // round trips of a small TCP message
	Memory   Kind = "memory"   // what a daemon holds resident
)

// Names of the figures that say how much processor time daemons used: weftd, and others.
const (
	WeftdCPU  = "weftd_cpu_seconds_per_gigabyte"
	DaemonCPU = "daemon_cpu_seconds_per_gigabyte"
)

// Kinds returns all kinds, in the order of a round.
func Kinds() []Kind { return []Kind{TCP, Packets, Mixed, Frames, Super, PingPong, Memory} }

// Measure is one thing that was measured on every rung.
type Measure struct {
	// Key stands for the measure in a benchmark's name, such as measure=tcp/streams=4.
	Key   string `json:"key"`
	Kind  Kind   `json:"kind"`
	Title string `json:"title"`
	// Wire is the name of the wire that it was measured on, which is in Key too; empty if the document has none.
	Wire string `json:"wire,omitempty"`
	// Streams is set for TCP. The sizes are set if all packets have the same: that of the Ethernet
	// frame with its check sequence, that of the IP packet, and that of the UDP payload. Nominal is the
	// frame that was asked for, if the overlay's MTU or the headers allowed only another.
	Streams int `json:"streams,omitempty"`
	Nominal int `json:"nominal_frame_bytes,omitempty"`
	Frame   int `json:"frame_bytes,omitempty"`
	Packet  int `json:"ip_packet_bytes,omitempty"`
	Payload int `json:"udp_payload_bytes,omitempty"`
	// Placement says on which CPUs the ends of a ping-pong ran.
	Placement string   `json:"placement,omitempty"`
	Results   []Result `json:"results"`
	// Gaps are the rounds of rungs that were to be measured and could not be. A rung all of whose rounds are
	// gaps has no result.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Result is what was measured on one rung.
type Result struct {
	Rung string `json:"rung"`
	// Figures are the quantities that were measured; ratios are taken of the first.
	Figures []Figure `json:"figures"`
	// Ratio is that of the first figure to the reference's in the same round.
	Ratio *Spread `json:"ratio_to_reference,omitempty"`
}

// Figure is one quantity over the rounds.
type Figure struct {
	// Name contains the unit: throughput_gigabits_per_second. Unit is that unit as benchstat has it: Gb/s.
	Name string `json:"name"`
	Unit string `json:"unit"`
	// MoreIsBetter is false for times and losses.
	MoreIsBetter bool `json:"more_is_better"`
	Spread
}

// Spread is a series of values, and the figures that sum it up.
type Spread struct {
	// Median is always a value that was measured: the lower one, if there are two in the middle.
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Rounds are the values of the rounds in order. Rounds that are gaps are left out, and of a ratio those that
	// have none.
	Rounds []float64 `json:"rounds"`
}

// Value is one figure of one round.
type Value struct {
	Name, Unit string
	N          float64
}

// Sample is what one measure found on one rung in one round.
type Sample struct {
	Measure, Rung string
	Values        []Value
}

// New makes a document without results.
func New() *Document {
	return &Document{Schema: Schema, Version: Version, Rungs: []Rung{}, Measures: []Measure{}, Notes: []string{}}
}

// Measure returns the measure with that key, or nil.
func (d *Document) Measure(key string) *Measure {
	for i := range d.Measures {
		if d.Measures[i].Key == key {
			return &d.Measures[i]
		}
	}
	return nil
}

// Result returns the result of a rung, or nil.
func (m *Measure) Result(rung string) *Result {
	for i := range m.Results {
		if m.Results[i].Rung == rung {
			return &m.Results[i]
		}
	}
	return nil
}

// Figure returns the figure with that name, or nil.
func (r *Result) Figure(name string) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Name == name {
			return &r.Figures[i]
		}
	}
	return nil
}

// Add adds a sample. Its measure must be in the document. Samples and gaps of a rung have to come in the
// order of the rounds, from the first on, one of either for each round.
func (d *Document) Add(s Sample) {
	m := d.Measure(s.Measure)
	r := m.Result(s.Rung)
	if r == nil {
		m.Results = append(m.Results, Result{Rung: s.Rung})
		r = &m.Results[len(m.Results)-1]
	}
	for _, v := range s.Values {
		f := r.Figure(v.Name)
		if f == nil {
			r.Figures = append(r.Figures, Figure{Name: v.Name, Unit: v.Unit,
				MoreIsBetter: strings.HasSuffix(v.Unit, "/s") || strings.HasPrefix(v.Unit, "packets/")})
			f = &r.Figures[len(r.Figures)-1]
		}
		f.Spread = spread(append(f.Rounds, v.N))
	}
}

// Conclude computes the ratios. It is called when all samples are added.
func (d *Document) Conclude() {
	for i := range d.Measures {
		m := &d.Measures[i]
		for k := range m.Results {
			r := &m.Results[k]
			var ratios []float64
			for round := range len(r.Figures[0].Rounds) + m.gapsBefore(r.Rung, math.MaxInt) {
				if ratio, ok := d.ratio(m, r, round); ok {
					ratios = append(ratios, ratio)
				}
			}
			if r.Ratio = nil; len(ratios) > 0 {
				s := spread(ratios)
				r.Ratio = &s
			}
		}
	}
}

// ratio returns the ratio of one round. There is none without a reference, if the reference's figure is 0, or
// if either of the two is a gap.
func (d *Document) ratio(m *Measure, r *Result, round int) (float64, bool) {
	ref := m.Result(d.Reference)
	if d.Reference == "" || ref == nil || slices.ContainsFunc(d.Rungs, func(g Rung) bool {
		return g.Once && g.Name == r.Rung
	}) {
		return 0, false
	}
	mine, measured := m.at(r, &r.Figures[0], round)
	theirs, known := m.at(ref, &ref.Figures[0], round)
	if !measured || !known || theirs <= 0 {
		return 0, false
	}
	return mine / theirs, true
}

func spread(l []float64) Spread {
	return Spread{median(l), slices.Min(l), slices.Max(l), l}
}

func median[T cmp.Ordered](l []T) T {
	s := slices.Sorted(slices.Values(l))
	return s[(len(s)-1)/2]
}

// WriteJSON writes the document, indented.
func (d *Document) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

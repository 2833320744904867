package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// example makes a document with every kind of measure, five rungs, three rounds, and names that would
// harm a page that does not escape them.
func example() *Document {
	d := New()
	d.Tool, d.Command, d.Topology = "v1 <b>", `weft bench --rungs "a&b"`, "pod – node – pod"
	d.Started, d.Seconds, d.Reference = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC), 61.5, "vxlan"
	d.Machine = Machine{Kernel: "6.18", CPUs: 2, Model: "<script>alert(1)</script>", Go: "go1.26",
		Privilege: "as root", LoadBefore: "0 0 0", LoadAfter: "1 1 1", Busy: 0.9}
	d.Far = &Machine{Kernel: "6.1", CPUs: 4, Model: "other", Go: "go1.26", Privilege: "as root"}
	d.Settings = Settings{Rounds: 3, SweepRounds: 1, PingRounds: 10, TCPSeconds: 1, TrialSeconds: 0.1,
		PingSeconds: 0.5, LossLimit: 0.005, FrameBytes: []int{64, 512, 1518}}
	d.Notes = []string{"What this <machine> cannot show."}
	d.Rungs = []Rung{{"veth", "a cable", 1500, true}, {"host-gw", "routes", 1500, false},
		{"vxlan", "the kernel's", 1450, false}, {"socket", "weftd", 1472, false}, {"x<y>", "odd", 1472, false}}
	d.Measures = []Measure{
		{Key: "measure=tcp/streams=1", Kind: TCP, Title: "TCP, 1 stream", Streams: 1},
		{Key: "measure=packets/size=64", Kind: Packets, Title: "UDP small", Payload: 64},
		{Key: "measure=mixed/flows=1000", Kind: Mixed, Title: "UDP mixed"},
		{Key: "measure=frames/frame=64", Kind: Frames, Title: "frames of 64", Nominal: 64, Frame: 64, Packet: 46,
			Payload: 18},
		{Key: "measure=frames/frame=512", Kind: Frames, Title: "frames of 512", Nominal: 512, Frame: 512,
			Packet: 494, Payload: 466},
		{Key: "measure=frames/frame=1518", Kind: Frames, Title: "frames of 1468", Nominal: 1518, Frame: 1468,
			Packet: 1450, Payload: 1422},
		{Key: "measure=super/frame=1518", Kind: Super, Title: "superpackets", Nominal: 1518, Frame: 1468,
			Packet: 1450, Payload: 1422},
		{Key: "measure=pingpong/size=64/cpus=0,1", Kind: PingPong, Title: "ping-pong", Placement: "0,1"},
		{Key: "measure=pingpong/size=64/cpus=0,0", Kind: PingPong, Title: "ping-pong", Placement: "0,0"},
		{Key: "measure=pingpong/size=64/cpus=any", Kind: PingPong, Title: "ping-pong", Placement: "any"},
		{Key: "measure=memory", Kind: Memory, Title: "memory"},
	}
	d.Wires = []Wire{{"full", "a cable"}, {"plain", "a <card>"}}
	one := d.Measures
	d.Measures = nil
	for _, w := range d.Wires {
		for _, m := range one {
			m.Wire, m.Key = w.Name, m.Key+"/wire="+w.Name
			d.Measures = append(d.Measures, m)
		}
	}
	for round := range 3 {
		for k, m := range d.Measures {
			for i, r := range d.Rungs {
				if sweep := m.Kind == Frames || m.Kind == Super; round > 0 && (r.Once || sweep) ||
					m.Kind == Memory && i < 3 {
					continue
				}
				d.Add(sampleOf(m, r.Name, float64(10*(i+1)+round+k)))
			}
		}
	}
	d.Conclude()
	return d
}

func sampleOf(m Measure, rung string, n float64) Sample {
	s := Sample{Measure: m.Key, Rung: rung}
	switch m.Kind {
	case TCP:
		s.Values = []Value{{"throughput_gigabits_per_second", "Gb/s", n},
			{"cpu_seconds_per_gigabyte", "cpu-s/GB", 1 / n}, {"weftd_cpu_seconds_per_gigabyte", "weftd-s/GB", 0.5 / n}}
	case Packets, Mixed:
		s.Values = []Value{{"delivered_kilopackets_per_second", "kpackets/s", n}, {"lost_percent", "%lost", 0.1}}
	case Frames, Super:
		s.Values = []Value{{"delivered_kilopackets_per_second", "kpackets/s", n}, {"lost_percent", "%lost", 0.1},
			{"lossless_kilopackets_per_second", "kpackets-lossless/s", n / 2}}
	case PingPong:
		s.Values = []Value{{"round_trip_p50_microseconds", "us-rtt-p50", n}}
	case Memory:
		s.Values = []Value{{"resident_mebibytes", "MiB-resident", n}}
	}
	return s
}

// TestRatiosAreOfARound: ratios are taken within a round, and the median is that of the ratios.
func TestRatiosAreOfARound(t *testing.T) {
	d := New()
	d.Reference = "vxlan"
	d.Rungs = []Rung{{Name: "vxlan"}, {Name: "socket"}}
	d.Measures = []Measure{{Key: "measure=tcp/streams=1", Kind: TCP}, {Key: "measure=x", Kind: Memory}}
	for _, v := range [][2]float64{{10, 5}, {1, 2}, {4, 3}} {
		d.Add(Sample{Measure: "measure=tcp/streams=1", Rung: "vxlan",
			Values: []Value{{"a", "Gb/s", v[0]}, {"b", "cpu-s/GB", 1}}})
		d.Add(Sample{Measure: "measure=tcp/streams=1", Rung: "socket",
			Values: []Value{{"a", "Gb/s", v[1]}, {"b", "cpu-s/GB", 2}}})
	}
	d.Add(Sample{Measure: "measure=x", Rung: "socket", Values: []Value{{"c", "us", 7}}})
	d.Conclude()
	var lines, table strings.Builder
	if err := d.WriteLines(&lines, "measure=tcp/streams=1", 1, 2); err != nil {
		t.Fatal(err)
	}
	want := "BenchmarkOverlay/measure=tcp/streams=1/rung=vxlan-2\t1\t1.00 Gb/s\t1.00 cpu-s/GB\t1.00 " +
		"ratio-to-vxlan\n" +
		"BenchmarkOverlay/measure=tcp/streams=1/rung=socket-2\t1\t2.00 Gb/s\t2.00 cpu-s/GB\t2.00 ratio-to-vxlan\n"
	if lines.String() != want {
		t.Errorf("lines\n%s, want\n%s", &lines, want)
	}
	if err := d.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(table.String()) {
		rows = append(rows, strings.Fields(line))
	}
	for i, want := range []string{
		"tcp/streams=1 vxlan 4.00 Gb/s 1.00–10.0 1.00 1.00–1.00 1.00 cpu-s/GB",
		"socket 3.00 Gb/s 2.00–5.00 0.75 0.50–2.00 2.00 cpu-s/GB",
		"x socket 7.00 us 7.00–7.00 - -",
	} {
		if got := strings.Join(rows[len(rows)-3+i], " "); got != want {
			t.Errorf("row %d %q, want %q", i, got, want)
		}
	}
}

// TestLinesAreBenchmarks: benchstat takes a name without blanks, a count, and values with units.
func TestLinesAreBenchmarks(t *testing.T) {
	d := example()
	form := regexp.MustCompile(`^BenchmarkOverlay/measure=\S+/rung=[^\s/]+-2\t1(\t[0-9.]+ \S+)+$`)
	n := 0
	for _, m := range d.Measures {
		for round := range 4 {
			var b strings.Builder
			if err := d.WriteLines(&b, m.Key, round, 2); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if n++; !form.MatchString(strings.TrimSuffix(line, "\n")) {
					t.Errorf("%q", line)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("%d lines", n)
	}
}

func TestJSONComesBack(t *testing.T) {
	d := example()
	var b bytes.Buffer
	if err := d.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	var back Document
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&back); err != nil || !reflect.DeepEqual(d, &back) {
		t.Errorf("what was read differs from what was written: %v", err)
	}
	for _, want := range []string{`"schema": "weft-bench"`, `"schema_version": 2`, `"wire": "plain"`,
		`"reference_rung": "vxlan"`, `"throughput_gigabits_per_second"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in it", want)
		}
	}
}

// TestPage: the page is well formed and self-contained, and has every rung and measure.
func TestPage(t *testing.T) {
	for name, d := range map[string]*Document{"full": example(), "nothing": New(),
		"no reference": func() *Document {
			d := example()
			d.Reference, d.Far = "", nil
			d.Conclude()
			return d
		}()} {
		var b bytes.Buffer
		if err := d.WriteHTML(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := b.String()
		wellFormed(t, name, text)
		for _, bad := range []string{"<script", "http://", "https://", "url(", "@import", "ZgotmplZ", "NaN", "Inf",
			"v1 <b>", "x<y>", "<card>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: there is %q in the page", name, bad)
			}
		}
		for _, r := range d.Rungs {
			if !strings.Contains(text, strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(r.Name)) {
				t.Errorf("%s: rung %s is not there", name, r.Name)
			}
		}
		if name == "full" && (strings.Count(text, `class="fill`) < 100 ||
			!strings.Contains(text, "Wire plain") || !strings.Contains(text, "a &lt;card&gt;") ||
			strings.Count(text, "aria-label=") < 8) {
			t.Errorf("%d bars", strings.Count(text, `class="fill`))
		}
	}
}

// wellFormed reads the page as XML: it is written so that it is both HTML and XML.
func wellFormed(t *testing.T, name, text string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "<!DOCTYPE html>")))
	dec.Strict = true
	for {
		if _, err := dec.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		ratio float64
		more  bool
		text  string
		class string
	}{
		{1.3, true, "▲ 1.30", "best"}, {1.1, true, "▲ 1.10", "better"}, {1, true, "≈ 1.00", ""},
		{0.9, true, "▼ 0.90", "worse"}, {0.3, true, "▼ 0.30", "worst"},
		{0.5, false, "▲ 0.50", "best"}, {1.5, false, "▼ 1.50", "worst"}, {1.02, false, "≈ 1.02", ""},
	} {
		if text, class := verdict(c.ratio, c.more); text != c.text || class != c.class {
			t.Errorf("%g, more is better %v: %q %q", c.ratio, c.more, text, class)
		}
	}
}

// TestWiresStandApart: what was measured on one wire is in rows of its own, and has its ratios there.
func TestWiresStandApart(t *testing.T) {
	d := New()
	d.Reference, d.Rungs = "vxlan", []Rung{{Name: "vxlan"}, {Name: "socket"}}
	on := func(wire string, mine, theirs float64) {
		key := "measure=tcp/streams=1/wire=" + wire
		d.Wires = append(d.Wires, Wire{Name: wire})
		d.Measures = append(d.Measures, Measure{Key: key, Kind: TCP, Title: "TCP", Wire: wire})
		d.Add(Sample{Measure: key, Rung: "vxlan", Values: []Value{{"a", "Gb/s", theirs}}})
		d.Add(Sample{Measure: key, Rung: "socket", Values: []Value{{"a", "Gb/s", mine}}})
	}
	on("uso", 6, 3)
	on("plain", 1, 4)
	d.Conclude()
	var table strings.Builder
	if err := d.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(table.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{"uso tcp/streams=1 vxlan 3.00 Gb/s 3.00–3.00 1.00 1.00–1.00",
		"socket 6.00 Gb/s 6.00–6.00 2.00 2.00–2.00",
		"plain tcp/streams=1 vxlan 4.00 Gb/s 4.00–4.00 1.00 1.00–1.00",
		"socket 1.00 Gb/s 1.00–1.00 0.25 0.25–0.25"} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in\n%s", want, &table)
		}
	}
	var markdown strings.Builder
	if err := d.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	want := "| | **wire uso**: vxlan | socket | **wire plain**: vxlan | socket |\n|---|--:|--:|--:|--:|\n" +
		"| TCP, Gb/s | 3.00 | 6.00: **2.00** (2.00–2.00) | 4.00 | 1.00: **0.25** (0.25–0.25) |\n"
	if markdown.String() != want {
		t.Errorf("Markdown\n%s, want\n%s", &markdown, want)
	}
}

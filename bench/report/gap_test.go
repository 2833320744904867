package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// gappy makes a document of two rounds in which the reference has a gap, a rung has nothing but gaps, and
// another was not tried.
func gappy() *Document {
	d := New()
	d.Reference, d.Topology = "vxlan", "pod – pod"
	d.Rungs = []Rung{{Name: "vxlan"}, {Name: "socket"}, {Name: "raw"}, {Name: "gone"}}
	d.Measures = []Measure{{Key: "measure=tcp/streams=1", Kind: TCP, Title: "TCP", Streams: 1},
		{Key: "measure=mixed", Kind: Mixed, Title: "mixed"}}
	tcp := func(rung string, n float64) {
		d.Add(Sample{Measure: "measure=tcp/streams=1", Rung: rung,
			Values: []Value{{"throughput_gigabits_per_second", "Gb/s", n},
				{"cpu_seconds_per_gigabyte", "cpu-s/GB", 1}}})
	}
	d.AddGap("measure=tcp/streams=1", Gap{Rung: "vxlan", Round: 1, Attempts: 3, Reason: "no <byte>\n\tarrived"})
	tcp("vxlan", 4)
	tcp("socket", 5)
	tcp("socket", 6)
	for round := range 2 {
		for _, m := range d.Measures {
			d.AddGap(m.Key, Gap{Rung: "raw", Round: round + 1, Attempts: 1, Reason: "nothing came"})
			d.AddGap(m.Key, Gap{Rung: "gone", Round: round + 1, Reason: "not tried"})
		}
	}
	d.Conclude()
	return d
}

// TestGaps: a gap is shown with its reason in every form, and no ratio is taken of one.
func TestGaps(t *testing.T) {
	d := gappy()
	if r := d.Measures[0].Result("socket").Ratio; r == nil || len(r.Rounds) != 1 || r.Median != 1.5 {
		t.Errorf("ratio %+v, want that of round 2 alone", r)
	}
	var table, markdown, page, lines strings.Builder
	if err := d.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(table.String()), " ")
	for _, want := range []string{
		"tcp/streams=1 vxlan 4.00 Gb/s 4.00–4.00 1.00 1.00–1.00 1.00 cpu-s/GB (1 of 2 rounds missing) socket",
		"raw gap - - - gone gap - - - mixed raw gap - - - gone gap - - - gap:",
		"gap: tcp/streams=1 of vxlan, round 1, tried 3 times: no <byte> arrived gap:",
		"gap: mixed of raw, round 2, tried 1 time: nothing came gap: 4 measurements more of gone: not tried",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	if err := d.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| TCP, Gb/s | 4.00 | 5.00: **1.50** (1.50–1.50) | gap | gap |",
		"| mixed | – | – | gap | gap |"} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no %q in\n%s", want, &markdown)
		}
	}
	if err := d.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, "gaps", page.String())
	for _, want := range []string{"What could not be measured", "no &lt;byte&gt; arrived</li>",
		"4 measurements more of gone: not tried", `<span class="value">gap`, "(1 of 2 rounds missing)"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for round, want := range []string{"rung=socket-2\t1\t5.00 Gb/s\t1.00 cpu-s/GB\n",
		"rung=vxlan-2\t1\t4.00 Gb/s"} {
		lines.Reset()
		if err := d.WriteLines(&lines, "measure=tcp/streams=1", round, 2); err != nil ||
			!strings.Contains(lines.String(), want) || strings.Count(lines.String(), "rung=vxlan") != round {
			t.Errorf("%v, round %d: %q", err, round, &lines)
		}
	}
	var b bytes.Buffer
	if err := d.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Document
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	back.Conclude()
	was, _ := json.Marshal(d)
	is, _ := json.Marshal(&back)
	if !bytes.Equal(was, is) || !bytes.Contains(is,
		[]byte(`{"rung":"vxlan","round":1,"attempts":3,"reason":"no \u003cbyte\u003e arrived"}`)) {
		t.Errorf("%s\n%s", was, is)
	}
}

package overlay

import (
	"strings"
	"testing"
	"time"

	"weft/bench/load"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig(" rounds=2 tcp=3s rungs=vxlan,socket measures=tcp receive=wait loss=0.01 weftd=/x")
	if err != nil || c.Rounds != 2 || c.TCP != 3*time.Second || len(c.rungs()) != 2 || len(c.measures()) != 2 || c.Receive != load.Wait || c.Weftd != "/x" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseConfig(""); err != nil || len(c.rungs()) != len(Rungs()) || c.Rounds < 3 {
		t.Errorf("default: %+v, %v", c, err)
	}
	_, err = ParseConfig("rounds=no trial=0s rungs=vlan measures=x nonsense=1 receive=never")
	for _, want := range []string{"rounds=no", "to be positive", `rung "vlan"`, `measure "x"`, "nonsense", "receive=never"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// TestReport: ratios are taken within a round, and the median is of those.
func TestReport(t *testing.T) {
	var r Report
	for round, v := range [][2]float64{{10, 5}, {1, 2}, {4, 3}} {
		r.Samples = append(r.Samples,
			Sample{"measure=tcp/streams=1", Reference, round, []Value{{"Gb/s", v[0]}, {"cpu-s/GB", 1}}},
			Sample{"measure=tcp/streams=1", "socket", round, []Value{{"Gb/s", v[1]}, {"cpu-s/GB", 2}}})
	}
	r.Samples = append(r.Samples, Sample{"measure=x", "socket", 0, []Value{{"us", 7}}})
	var lines, table strings.Builder
	if err := r.writeLines(&lines, "measure=tcp/streams=1", 1, 2); err != nil {
		t.Fatal(err)
	}
	want := "BenchmarkOverlay/measure=tcp/streams=1/rung=vxlan-2\t1\t1.00 Gb/s\t1.00 cpu-s/GB\t1.00 ratio-to-vxlan\n" +
		"BenchmarkOverlay/measure=tcp/streams=1/rung=socket-2\t1\t2.00 Gb/s\t2.00 cpu-s/GB\t2.00 ratio-to-vxlan\n"
	if lines.String() != want {
		t.Errorf("lines\n%s, want\n%s", &lines, want)
	}
	if err := r.WriteTable(&table); err != nil {
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

func TestReadMachine(t *testing.T) {
	m, err := ReadMachine()
	if err != nil || !strings.Contains(m.Name, "CPUs (") || !strings.HasPrefix(m.Load(), "loadavg ") {
		t.Errorf("%+v, %v", m, err)
	}
	if got := (Machine{}).LoadSince(m); got != "not reached" {
		t.Errorf("a run that did not end: %q", got)
	}
}

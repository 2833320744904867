package lab

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A field that has a unit has it in its name.
func TestReportNamesUnits(t *testing.T) {
	text, err := json.Marshal(Report{Pairs: []Pair{{P50: time.Microsecond, P99: 2 * time.Microsecond}},
		Streams: []Stream{{Seconds: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"rttP50Nanoseconds":1000`, `"rttP99Nanoseconds":2000`, `"seconds":3`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

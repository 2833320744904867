package costs

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
pkg: weft/encap
cpu: some
BenchmarkChecksum/size=20-2         	163904131	         7.3 ns/op	2738.41 MB/s	       0 B/op	       0 allocs/op
BenchmarkOdd/size=1-1-2             	       1	         9 ns/op	       3 allocs/op
BenchmarkNoTime-2                   	       1	         4 rungs
PASS
`

func TestParse(t *testing.T) {
	got, err := Parse(strings.NewReader(output))
	want := Run{
		"weft/encap.BenchmarkChecksum/size=20": {7.3, 0},
		"weft/encap.BenchmarkOdd/size=1-1":     {9, 3},
		"weft/encap.BenchmarkNoTime":           {},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := Parse(strings.NewReader("BenchmarkX-2 1 many ns/op\n")); err == nil {
		t.Error("a cost that is no number is taken")
	}
}

func TestBaselineRoundTrip(t *testing.T) {
	b := Baseline{"some machine", map[string]Figure{"a.BenchmarkX/y=1": {0.5, 2}, "a.BenchmarkZ": {12.34, 0}}}
	var buf bytes.Buffer
	if err := b.Write(&buf); err != nil {
		t.Fatal(err)
	}
	got, err := ReadBaseline(&buf)
	if diff := cmp.Diff(b, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, bad := range []string{"name", "name 1", "name 0 0", "name x 0"} {
		if _, err := ReadBaseline(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestCompare(t *testing.T) {
	b := Baseline{"", map[string]Figure{"same": {1, 0}, "dear": {1, 0}, "cheap": {1, 1}, "alloc": {1, 0}, "gone": {1, 0}}}
	now := map[string]Figure{"same": {1.29, 0}, "dear": {1.33, 0}, "cheap": {0.5, 0}, "alloc": {1, 1}, "new": {9, 9}}
	rows, faults := Compare(b, now, 0.3)
	var got []string
	for _, r := range rows {
		got = append(got, r.Name+" "+r.Verdict.String())
	}
	want := []string{"gone GONE", "alloc ALLOCATES", "dear DEARER", "new new", "cheap cheaper", "same "}
	if diff := cmp.Diff(want, got); diff != "" || faults != 3 {
		t.Errorf("%d faults\n%s", faults, diff)
	}
	var table strings.Builder
	if err := WriteTable(&table, rows); err != nil || !strings.Contains(table.String(), "+33 %") {
		t.Errorf("%v\n%s", err, &table)
	}
}

func TestBestOfRounds(t *testing.T) {
	r := Run{}
	r.add(Run{Reference: {100, 0}, "a": {50, 0}})
	r.add(Run{Reference: {80, 0}, "a": {60, 1}, "no time": {}})
	got, err := r.figures()
	if diff := cmp.Diff(map[string]Figure{"a": {50.0 / 80, 1}}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := (Run{"a": {1, 0}}).figures(); err == nil {
		t.Error("ratios without a reference")
	}
}

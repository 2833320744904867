package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/bench/report"
)

// briefly are the arguments of weft bench that make it as short as can be, or so many times as long.
func briefly(longer int, args ...string) []string {
	ms := func(n int) string { return (time.Duration(longer*n) * time.Millisecond).String() }
	return append([]string{"bench", "--quick", "--quiet", "--tcp", ms(60), "--trial", ms(20), "--ping", ms(300), "--loss", "0.5", "--frames", "64", "--json", "-"}, args...)
}

// tooBrief says whether weft bench found nothing to measure, as it does when the machine had no time for either end.
func tooBrief(err error) bool {
	said := stderrOf(err)
	return strings.Contains(said, "no byte arrived within") || strings.Contains(said, "no rate lost less than")
}

// TestBench runs the operator's command: over two rungs that it builds, and between two pods of a lab
// that is up. How fast they are is no matter here.
func TestBench(t *testing.T) {
	busy(t)
	requireRoot(t)
	weft, _ := command(t, "weft"), command(t, "weftd") // which may have to be built, and that is not what is limited
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	measured := func(args ...string) *report.Document {
		t.Helper()
		var out []byte
		var err error
		for longer := 1; longer <= 16; longer *= 4 {
			cmd := exec.CommandContext(ctx, weft, briefly(longer, args...)...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "WEFT_LAB_STATE="+dir)
			if out, err = cmd.Output(); err == nil || !tooBrief(err) {
				break
			}
			t.Logf("%v: %d times as long is too short: %v%s", args, longer, err, stderrOf(err))
		}
		if err != nil {
			t.Fatalf("%v: %v%s", args, err, stderrOf(err))
		}
		d, err := report.ReadJSON(strings.NewReader(string(out)))
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		for _, m := range d.Measures {
			for _, r := range m.Results {
				if r.Figures[0].Median <= 0 {
					t.Errorf("%v: %s of %s: %+v", args, m.Key, r.Rung, r.Figures[0])
				}
			}
		}
		return d
	}
	d := measured("--rungs", "vxlan,socket", "--html", "page.html")
	if len(d.Rungs) != 2 || len(d.Measures) < 8 || d.Measure("measure=memory/wire=plain") == nil {
		t.Errorf("%d rungs, %d measures", len(d.Rungs), len(d.Measures))
	}
	if page, err := os.ReadFile(filepath.Join(dir, "page.html")); err != nil || !strings.Contains(string(page), "</html>") {
		t.Errorf("the page: %v", err)
	}

	lab := func(args ...string) {
		t.Helper()
		cmd := exec.Command(weft, append([]string{"lab"}, args...)...)
		cmd.Env = append(os.Environ(), "WEFT_LAB_STATE="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	lab("up", "--lab", "bench", "--backend", "kernel-host-gw", "--pods", "1", "--ipv6", "--direct")
	defer lab("down", "--lab", "bench")
	for _, args := range [][]string{{"--from", "node1-pod1", "--to", "node2-pod1", "--reverse"}, {"--from", "node2-pod1", "--to", "node1-pod1", "--ipv6"}} {
		d := measured(append(args, "--lab", "bench")...)
		if len(d.Measures) < 7 || !strings.Contains(d.Topology, "node1-pod1") {
			t.Errorf("%v: %d measures, %q", args, len(d.Measures), d.Topology)
		}
	}
}

// stderrOf is what a program that failed has said.
func stderrOf(err error) string {
	if exit, ok := err.(*exec.ExitError); ok {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

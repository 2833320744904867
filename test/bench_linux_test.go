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

// briefly are the arguments of weft bench that make it as short as can be.
func briefly(args ...string) []string {
	return append([]string{"bench", "--quick", "--quiet", "--tcp", "60ms", "--trial", "20ms", "--ping", "300ms", "--loss", "0.5", "--frames", "64", "--json", "-"}, args...)
}

// TestBench runs the operator's command: over two rungs that it builds, and between two pods of a lab
// that is up. How fast they are is no matter here.
func TestBench(t *testing.T) {
	busy(t)
	requireRoot(t)
	weft, _ := command(t, "weft"), command(t, "weftd") // which may have to be built, and that is not what is limited
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	measured := func(args ...string) *report.Document {
		t.Helper()
		cmd := exec.CommandContext(ctx, weft, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "WEFT_LAB_STATE="+dir)
		out, err := cmd.Output()
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
	d := measured(briefly("--rungs", "vxlan,socket", "--html", "page.html")...)
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
		d := measured(briefly(append(args, "--lab", "bench")...)...)
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

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/bench/report"
)

func TestBenchSaysWhatIsWrong(t *testing.T) {
	for args, want := range map[string]string{
		"bench --rungs vlan":                                      "rung",
		"bench --measures speed":                                  "measure",
		"bench --quick --full":                                    "full",
		"bench --rounds 0":                                        "positive",
		"bench --frames 9":                                        "frame",
		"bench --lab none --from a --to b":                        "such",
		"bench --lab none":                                        "--from and --to",
		"bench --from a":                                          "--lab",
		"bench --to 127.0.0.1:1 --quick --quiet":                  "--through",
		"bench --through x --quick --quiet":                       "--to",
		"bench --to 127.0.0.1:0 --quick --quiet --through false":  "status",
		"bench --to no.such.host.invalid --quiet --through false": "no.such.host.invalid",
	} {
		if _, _, err := weft(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestBenchThrough runs both ends over loopback, and reads everything that comes out.
func TestBenchThrough(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, dir+"/weft"); err != nil {
		t.Fatal(err)
	}
	html, lines := filepath.Join(dir, "b.html"), filepath.Join(dir, "b.txt")
	// A file, as both the command and its far end write to it.
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	var out bytes.Buffer
	err = run(t.Context(), []string{"bench", "--to", "127.0.0.1:0", "--through", "env " + asCommand +
		"=1 PATH=" + dir,
		"--quick", "--reverse", "--json", "-", "--html", html, "--benchstat", lines,
		"--tcp", "60ms", "--trial", "20ms", "--ping", "300ms", "--loss", "0.5"}, &out, errs)
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.ReadFile(errs.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(stderr, []byte("takes")) || bytes.Contains(stderr, []byte("\r")) {
		t.Errorf("stderr %q: want how long it takes, and no progress where there is no terminal", stderr)
	}
	var d report.Document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Schema != report.Schema ||
		d.Version != report.Version {
		t.Fatalf("%v: %+v", err, d)
	}
	for _, m := range d.Measures {
		for _, r := range m.Results {
			if r.Figures[0].Median <= 0 {
				t.Errorf("%s %s: %+v", m.Key, r.Rung, r.Figures[0])
			}
		}
	}
	if len(d.Measures) < 6 || d.Tool == "" || !strings.HasPrefix(d.Command, "weft ") {
		t.Errorf("%d measures, tool %q, command %q", len(d.Measures), d.Tool, d.Command)
	}
	for file, want := range map[string]string{html: "</html>",
		lines: "BenchmarkOverlay/measure=tcp/streams=1/rung=to-"} {
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: no %q in it, %v", file, want, err)
		}
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/bench/report"
)

func TestBenchAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:5210", "10.0.0.1:0": "10.0.0.1:0", "fd00::1": "[fd00::1]:5210",
		"localhost:77": "127.0.0.1:77",
		"[fd00::1]":    "[fd00::1]:5210", "[fd00::1]:9": "[fd00::1]:9", "::ffff:10.0.0.1": "10.0.0.1:5210",
	} {
		if got, err := resolve(t.Context(), given, false); err != nil || got.String() != want {
			t.Errorf("--to %q: %v, %v, want %s", given, got, err, want)
		}
	}
	for _, bad := range []string{"nobody.invalid", ":70000", "10.0.0.1:x", "fd00::1:99999"} {
		if got, err := resolve(t.Context(), bad, false); err == nil {
			t.Errorf("--to %q: %v", bad, got)
		}
	}
}

func TestBenchArguments(t *testing.T) {
	got := passedOn([]string{"weft", "bench", "--lab", "x", "--quick", "--from=a", "--to", "b", "--json", "-"})
	if want := []string{"--quick", "--json", "-"}; !slices.Equal(got, want) {
		t.Errorf("passed on %q, want %q", got, want)
	}
	if got := passedOn([]string{"weft", "bench", "--name", "x", "--name=y", "--quick"}); !slices.Equal(got,
		[]string{"--quick"}) {
		t.Errorf("passed on %q: the other name of --lab", got)
	}
	if got := strings.Join(shown([]string{"/x/weft", "bench", "--to", "a b"}), " "); got != `bench --to "a b"` {
		t.Errorf("shown: %s", got)
	}
}

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
	d, err := report.ReadJSON(&out)
	if err != nil {
		t.Fatal(err)
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

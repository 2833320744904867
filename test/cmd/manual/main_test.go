package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPages makes the pages of stand-ins that speak as the programs do.
func TestPages(t *testing.T) {
	programs, out := t.TempDir(), filepath.Join(t.TempDir(), "man")
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script("weft", `if [ "$1" = lease ]; then cat <<'E'
List the leases.

Exit status: 0 - or 1.

Usage:
  weft lease [flags]

Examples:
  weft lease --json

Flags:
  -h, --help   help for lease
      --json   print JSON
E
else cat <<'E'
Look.

Usage:
  weft [command]

Available Commands:
  help        Help
  lease       List leases

Flags:
  -h, --help   help for weft

Use "weft [command] --help" for more.
E
fi
`)
	script("weftd", "printf 'weftd joins.\\n\\nusage: weftd [flags]\\n\\nFlags:\\n\\n  --check\\n        "+
		"check\\n  --v level\\n        .level \\\\n (default 0)\\n'")
	script("weft-cni", "echo 'weft-cni is a plugin'")
	if err := run([]string{"-o", out, "-version", "v1", "-date", "2026-01-02", programs}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"weft-cni.8", "weft-lease.1", "weft.1", "weftd.8"}; !slices.Equal(names, want) {
		t.Errorf("pages %q, want %q", names, want)
	}
	for file, wants := range map[string][]string{
		"weft-lease.1": {".TH WEFT-LEASE 1 \"2026-01-02\" \"weft v1\" \"weft\"\n.SH NAME\nweft\\-lease \\- List " +
			"leases\n", ".SH EXAMPLES\n.nf\n  weft lease \\-\\-json\n.fi\n",
			".TP\n\\fB\\-h, \\-\\-help\\fR\nhelp for lease\n", ".PP\nExit status: 0 \\- or 1.\n", "weft\\-" + "lease"},
		"weft.1": {".SH COMMANDS\n.TP\n\\fBhelp\\fR\nHelp\n",
			"SEE ALSO\n.PP\nweft\\-lease(1), weftd(8), weft\\-cni(8)\n"},
		"weftd.8": {"\\fB\\-\\-check\\fR\ncheck\n", "\\fB\\-\\-v level\\fR\n\\&.level \\en (default 0)\n"},
	} {
		b, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s has no %q:\n%s", file, want, b)
			}
		}
	}
}

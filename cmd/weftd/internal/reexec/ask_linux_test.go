package reexec

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAskTakesOnlyAWeftdThatReadsTheIndex(t *testing.T) {
	for _, tt := range []struct {
		name, script, version string
		ok                    bool
	}{
		{"a weftd", `case "$1" in --version) echo weftd 1.2;; upgrade-format) echo 2;; esac`, "1.2", true},
		{"another program", "echo weft 1.2", "", false},
		{"one that says too much", "while :; do echo weftd 1.2; done", "", false},
		{"one that leaves its output to a child", "echo weftd 1.2; sleep 10 &", "", false},
		{"one that fails", "echo weftd 1.2; exit 3", "", false},
		{"one of before", `case "$1" in --version) echo weftd 1.2;; upgrade-format) exit 2;; esac`, "1.2", false},
		{"one of another format", `case "$1" in --version) echo weftd 1.2;; upgrade-format) echo 99;; esac`,
			"1.2", false},
		{"one that does not take a flag",
			`case "$1" in --version) echo weftd 1.2;; upgrade-format) echo 2; echo "$2";; esac`, "1.2", false},
	} {
		path := filepath.Join(t.TempDir(), "weftd")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		version, err := Ask(t.Context(), Program{Path: path, Args: []string{"--iface=eth0"}})
		if version != tt.version && tt.ok || (err == nil) != tt.ok {
			t.Errorf("%s: %q %v", tt.name, version, err)
		}
	}
}

package bugreport

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/running"
)

// What weftd was told is there, and the files are those that it was told, not the usual ones. Variables that
// are not weftd's may be secrets whatever their names are, and so may one of weftd's that is misspelt.
func TestSettingsOfTheRunningDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"subnet.env": "FLANNEL_SUBNET=10.42.1.1/24",
		"net.json": `{"Network":"10.42.0.0/16"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := running.Process{PID: os.Getpid(), Environ: []string{"WEFTD_IFACE=eth1", "WEFTD_IFCAE=s3cret", "PW=s3cret",
		"WEFTD_ETCD_PASSWORD=s3cret"},
		Args: []string{"weftd", "--subnet-file=" + filepath.Join(dir, "subnet.env"), "--net-config-path",
			filepath.Join(dir, "net.json")}}
	var all string
	for _, p := range parts(Request{Process: p}) {
		if p.name == "weftd.txt" || p.name == "config.txt" {
			text, err := p.read(t.Context())
			all += fmt.Sprintf("%s\n%v\n", text, err)
		}
	}
	for _, want := range []string{"FLANNEL_SUBNET=10.42.1.1/24", `"Network"`, "iface\teth1\t(env WEFTD_IFACE)"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "s3cret") {
		t.Errorf("a secret:\n%s", all)
	}
}

// Every rule of the host is asked for, in each flavour and family that there is.
func TestRulesOfTheWholeHost(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	have := func(names ...string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho ran "+name+" $*\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func(what string, want ...string) {
		t.Helper()
		var all string
		for _, p := range parts(Request{}) {
			if strings.Contains(p.name, "tables") || strings.HasPrefix(p.name, "nft") {
				text, _ := p.read(t.Context())
				all += string(text)
			}
		}
		for _, w := range want {
			if strings.Count(all, "ran "+w+"\n") != 1 {
				t.Errorf("%s: %q was not run once:\n%s", what, w, all)
			}
		}
		if n := strings.Count(all, "ran "); n != len(want) {
			t.Errorf("%s: %d programs ran, want %d:\n%s", what, n, len(want), all)
		}
	}
	have("nft", "iptables-save", "ip6tables-save")
	has("one flavour", "nft --handle list ruleset", "iptables-save -c", "ip6tables-save -c")
	have("iptables-nft-save", "iptables-legacy-save", "ip6tables-nft-save", "ip6tables-legacy-save")
	has("both", "nft --handle list ruleset", "iptables-nft-save -c", "iptables-legacy-save -c",
		"ip6tables-nft-save -c", "ip6tables-legacy-save -c")
}

// The end of a log that goes to a file is there, and begins with a whole line.
func TestLogInAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(strings.Repeat("a line of the log\n", maxPart/18) + "more\nthe last line\n"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.Stderr = f
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it is killed, and says so
	text, err := logFile(running.Process{PID: cmd.Process.Pid}).read(t.Context())
	if err != nil || len(text) > maxPart || !strings.HasPrefix(string(text), "a line") ||
		!strings.HasSuffix(string(text), "\nthe last line\n") {
		t.Errorf("%v, %d bytes: %.40q", err, len(text), text)
	}
}

// What is too long ends with a whole line, since the beginning of a secret would not be known for one, and it
// is said.
func TestWhatIsTooLongIsCutAtALine(t *testing.T) {
	t.Parallel()
	p := program("long.txt", "", usual, "sh", "-c", "yes s3cret0123456789 | head -c 6000000")
	text, err := p.gather(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ends after") || len(text) > maxPart ||
		len(text) < maxPart-100 || !strings.HasSuffix(string(text), "s3cret0123456789\n") {
		t.Errorf("%v, %d bytes, %q", err, len(text), text[max(0, len(text)-20):])
	}
	if text, err := program("short.txt", "", usual, "echo", "x").read(context.Background()); err != nil ||
		string(text) != "x\n" {
		t.Errorf("%v %q", err, text)
	}
}

package bugreport

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/running"
)

// Of a file of variables, and of a unit, only what weft reads is in the archive: others' variables may be
// secrets whatever their names are.
func TestOthersVariablesAreLeftOut(t *testing.T) {
	t.Parallel()
	file := string(onlyOurs([]byte("# the old one was s3cret\n\nWEFTD_IFACE=eth1\nexport " +
		"FLANNELD_PUBLIC_IP=192.0.2.1\nWEFTD_IFCAE=s3cret\nHTTPS_PROXY=http://s3cret\nWEFTD_ETCD_PREFIX=s3cret " +
		"\\\n  s3cret2=\n; " +
		"s3cret\nTLS_PEM=\"s3cret\ns3cretZQ==\n\\\"s3=\n-----END\"\nWEFTD_PORT='s3cret\ns3cret='\nGOGC=50\n")))
	want := "WEFTD_IFACE=eth1\nWEFTD_IFCAE=xxxxx (no variable of weftd)\nWEFTD_ETCD_PREFIX=xxxxx\n" +
		"WEFTD_PORT=xxxxx (no variable of weftd)\nGOGC=50\n(left out: 5 variables of others)\n" +
		"line 4 is not NAME=value\nline 12 is not NAME=value\nline 13 is not NAME=value\n"
	if file != want {
		t.Errorf("got:\n%s\nwant:\n%s", file, want)
	}
	unit := string(onlyOurEnvironment([]byte("# /etc/systemd/system/weftd.service\n# s3cret\n# /opt/login as " +
		"root with s3cret\n[Service]\nExecStart=/usr/bin/env MYPW=s3cret GOGC=50 \"X=s3cret s3cret\" sh -c " +
		"'GOGC=50 PW=s3cret exec' Z=a\"s3cret /usr/local/bin/weftd " +
		"--iface=eth1\nLimitNOFILE=1024\nEnvironment=WEFTD_IFACE=eth1 GOGC=50\nEnvironment=\"WEFTD_IFACE=eth1\" " +
		"\"FOO=s3cret\"\nEnvironment=BAR=1 \\\n  BAZ=s3cret\nEnvironment=BAR=1 \\\n# goes on behind this\n  " +
		"QUX=s3cret\nUser=root\n")))
	want = "# /etc/systemd/system/weftd.service\n[Service]\nExecStart=/usr/bin/env MYPW=xxxxx GOGC=50 " +
		"\"X=xxxxx\" sh -c 'GOGC=xxxxx' Z=xxxxx /usr/local/bin/weftd " +
		"--iface=eth1\nLimitNOFILE=1024\nEnvironment=WEFTD_IFACE=eth1 " +
		"GOGC=50\nEnvironment=xxxxx\nEnvironment=xxxxx\nEnvironment=xxxxx\nEnvironment=xxxxx\nEnvironment=xxxxx\nUser=root\n"
	if unit != want {
		t.Errorf("got:\n%s\nwant:\n%s", unit, want)
	}
}

// The files are those that the running weftd was told, not the usual ones.
func TestFilesOfTheRunningDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"subnet.env": "FLANNEL_SUBNET=10.42.1.1/24",
		"net.json": `{"Network":"10.42.0.0/16"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := running.Process{PID: os.Getpid(),
		Args: []string{"weftd", "--subnet-file=" + filepath.Join(dir, "subnet.env"), "--net-config-path",
			filepath.Join(dir, "net.json")}}
	text, err := networkFiles(p).read(t.Context())
	if err != nil || !strings.Contains(string(text), "FLANNEL_SUBNET=10.42.1.1/24") ||
		!strings.Contains(string(text), `"Network"`) {
		t.Errorf("%v %s", err, text)
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
	text, err := p.read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ends after") || len(text) > maxPart ||
		len(text) < maxPart-100 || !strings.HasSuffix(string(text), "s3cret0123456789\n") {
		t.Errorf("%v, %d bytes, %q", err, len(text), text[max(0, len(text)-20):])
	}
	if text, err := program("short.txt", "", usual, "echo", "x").read(context.Background()); err != nil ||
		string(text) != "x\n" {
		t.Errorf("%v %q", err, text)
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/options"
	"weft/lease/etcd/embedded"
	"weft/lease/etcd/embedded/server"
	"weft/test/netns"
)

// asWeftd is a variable that makes the test binary run as weftd, so that tests have real
// processes with real exit statuses.
const asWeftd = "WEFT_TEST_BE_WEFTD"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == custody.Verb {
		// weftd starts itself as that, without variables of the test's
		main()
		os.Exit(0)
	}
	if os.Getenv("WEFT_UPGRADE") != "" {
		// an upgrade went back to this program, without the variables of its start
		main()
		os.Exit(0)
	}
	if os.Getenv(asWeftd) != "" {
		if err := os.Unsetenv(asWeftd); err != nil {
			panic(err)
		}
		main()
		os.Exit(0)
	}
	if filepath.Base(os.Args[0]) == embedded.Program {
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
		if err := server.Process(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	netns.Isolate()
	os.Exit(withPrograms(m.Run))
}

// withPrograms runs do with a weft-etcd and a weftd in $PATH, which are the test binary too. They are written
// before anything is forked: a program that a child still has open for writing cannot be executed.
func withPrograms(do func() int) int {
	dir, err := os.MkdirTemp("", "weft-programs-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	script := fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %s \"$@\"\n", asWeftd, self)
	if err := errors.Join(os.Symlink(self, filepath.Join(dir, embedded.Program)),
		os.WriteFile(filepath.Join(dir, "weftd"), script, 0o755),
		os.Setenv("PATH", dir+":"+os.Getenv("PATH"))); err != nil {
		panic(err)
	}
	return do()
}

// call calls run, and returns what it printed.
func call(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run(ctx, args, process{}, &out, &errs)
	return out.String(), errs.String(), err
}

func TestHelpAndVersionGoToStdout(t *testing.T) {
	for args, want := range map[string]string{"version": "weftd ", "version --json": `"program": "weftd"`,
		"--version --json": `"schema_version": 1`} {
		out, errs, err := call(t, strings.Fields(args)...)
		if err != nil || errs != "" || !strings.Contains(out, want) {
			t.Errorf("%s: %v, stderr %q, stdout %q", args, err, errs, out)
		}
	}
	if _, _, err := call(t, "version", "--jsn"); !errors.Is(err, buildinfo.ErrUsage) {
		t.Errorf("got %v", err)
	}
	for _, arg := range []string{"-h", "-help", "--help"} {
		out, errs, err := call(t, arg)
		if err != nil || errs != "" || !strings.Contains(out, "--etcd-endpoints") {
			t.Errorf("%s: %v, stderr %q, stdout %.80q", arg, err, errs, out)
		}
	}
	for _, arg := range []string{"-version", "--version", "--version=true"} {
		out, errs, err := call(t, arg)
		if err != nil || errs != "" || !strings.HasPrefix(out, "weftd ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %v, stderr %q, stdout %q", arg, err, errs, out)
		}
	}
}

func TestFaultsOfTheCommandLineEndTheRun(t *testing.T) {
	t.Setenv("WEFTD_IP_MASQ", "perhaps")
	_, _, err := call(t, "--kube-subnet-mgr", "--embedded-etcd", "--healthz-port=-1")
	if !errors.Is(err, options.ErrUsage) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"WEFTD_IP_MASQ", "kube-subnet-mgr", "healthz-port"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
}

func TestLogFormatsAndLevels(t *testing.T) {
	for _, tt := range []struct {
		cfg  options.Log
		want string
	}{
		{options.Log{Format: "text"}, "level=INFO msg=seen\n"},
		{options.Log{Format: "json"}, `"level":"INFO","msg":"seen"}` + "\n"},
		{options.Log{Format: "text", Verbosity: 1}, "level=DEBUG msg=deep\n"},
	} {
		var out bytes.Buffer
		log, _ := newLogger(tt.cfg, &out)
		log.Debug("deep")
		if tt.cfg.Verbosity == 0 {
			log.Log(t.Context(), slog.LevelInfo, "seen")
		}
		if !strings.HasSuffix(out.String(), tt.want) {
			t.Errorf("%+v: %q", tt.cfg, out.String())
		}
	}
}

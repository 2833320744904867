package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
)

// asDaemon makes the test binary answer as a weftd, on the socket that it names.
const asDaemon = "WEFT_TEST_IS_DAEMON"

// A daemon that was stopped is named with its pid and state, and what can be read elsewhere is.
func TestStoppedDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), self)
	daemon.Env = append(os.Environ(), asDaemon+"="+socket)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() }) // it is killed, and says so
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, _, err = weft(t, "status", "--control-socket", socket); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEFTD_CONTROL_SOCKET", socket)
	t.Setenv("WEFTD_ETCD_ENDPOINTS", "http://127.0.0.1:1")
	t.Setenv("WEFTD_KUBE_SUBNET_MGR", "false")
	stopped := fmt.Sprintf("(pid %d, stopped: kill -CONT %[1]d", daemon.Process.Pid)
	for _, args := range []string{"status", "peers", "lease release 10.42.2.0/24", "cleanup"} {
		_, stderr, err := weft(t, strings.Fields(args)...)
		if !errors.Is(err, control.ErrStuck) || errors.Is(err, control.ErrNoDaemon) || !strings.Contains(err.Error(), stopped) || stderr != "" {
			t.Errorf("%s: %v %s", args, err, stderr)
		}
	}
	_, stderr, err := weft(t, "lease", "list") // nobody is at that endpoint either
	if !strings.Contains(stderr, stopped) || !strings.Contains(stderr, "asking etcd at [http://127.0.0.1:1]") || err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("lease list: %v %s", err, stderr)
	}
	if err := daemon.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, _, err := weft(t, "status"); err != nil {
		t.Error(err)
	}
}

// Where nobody counts for each peer, nobody is told a number.
func TestUncountedIsNoZero(t *testing.T) {
	socket := start(t, &node{})
	out, _, err := weft(t, "peers", "--json", "--control-socket", socket)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(out, `"txPackets"`) != 2 || strings.Count(out, `"rxBytes"`) != 2 || strings.Count(out, `"name"`) != 3 {
		t.Errorf("three peers, and two are counted:\n%s", out)
	}
}

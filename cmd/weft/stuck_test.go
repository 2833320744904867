package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weft/cmd/internal/control"
	"weft/test/await"
)

// asDaemon is a variable that makes the test binary answer as a weftd, on the socket that its value names.
const asDaemon = "WEFT_TEST_IS_DAEMON"

// The error about a stopped daemon has its pid and state, and what the store can answer is read there.
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
	t.Setenv("WEFTD_CONTROL_SOCKET", socket)
	answers := func() error {
		_, _, err := weft(t, "status")
		return err
	}
	await.OK(t, "the daemon answers", answers)
	if err := daemon.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// A signal is only sent by then: each thread stops when it is its turn, and /proc says so when the first has.
	await.OK(t, "the daemon is stopped", func() error { return inState(daemon.Process.Pid, 'T') })
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
	await.OK(t, "the daemon answers again", answers)
}

// inState says whether that letter is the state of a process, as ps(1) names it.
func inState(pid int, want byte) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	if i := bytes.LastIndex(stat, []byte(") ")); i < 0 || stat[i+2] != want {
		return fmt.Errorf("its state is not %c: %s", want, stat)
	}
	return nil
}

// If nobody counts for each peer, no number is shown, not even 0.
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

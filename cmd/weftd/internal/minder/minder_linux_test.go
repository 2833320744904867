package minder

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
)

// becoming is testdata/cmd/become, built as make build builds weftd, without C code, and started. A minder waits for all
// children of its process, so that a test's process cannot be one.
func becoming(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "become")
	build := exec.Command("go", "build", "-o", program, "./testdata/cmd/become")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// listens waits until a process has executed itself as a minder, and hears signals: until then one would end it. What shows it is its wait for
// children, which comes after that.
func listens(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	waits := fmt.Sprintf("%d ", unix.SYS_WAIT4)
	await.True(t, "it is a minder that listens", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		if err != nil || !strings.Contains(string(text), "\x00"+Verb+"\x00") {
			return false
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", cmd.Process.Pid))
		return err == nil && slices.ContainsFunc(threads, func(file string) bool {
			call, err := os.ReadFile(file)
			return err == nil && strings.HasPrefix(string(call), waits)
		})
	})
}

// status waits for the end of a process.
func status(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status is asked for
		close(ended)
	}()
	select {
	case <-ended:
	case <-await.Context(t, 2*await.Patience).Done():
		_ = cmd.Process.Kill()
		t.Fatal("it does not end")
	}
	return cmd.ProcessState.ExitCode()
}

func send(t *testing.T, cmd *exec.Cmd, sig unix.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// script is a shell's: a process that ends with a status when it is asked to stop, and with 99 by itself after a while.
func script(status int) string {
	return fmt.Sprintf(`trap "exit %d" TERM; echo ready; exec 1>&-; for i in $(seq 200); do sleep 0.1; done; exit 99`, status)
}

// A successor that ended while the one before it was still there, which has waited for it, is not waited for without an end.
func TestASuccessorThatHasEndedAlready(t *testing.T) {
	t.Parallel()
	if got := status(t, becoming(t, "ended", "echo ready; exec sleep 0.2")); got != 1 {
		t.Errorf("status %d", got)
	}
}

// A minder that has passed a wish to stop on to a weftd that had handed over already passes it on to that one's successor too.
func TestAWishToStopReachesTheSuccessor(t *testing.T) {
	t.Parallel()
	cmd := becoming(t, "succeeded", script(0), script(9))
	listens(t, cmd)
	send(t, cmd, unix.SIGTERM)
	if got := status(t, cmd); got != 9 {
		t.Errorf("status %d, want the successor's, 9", got)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
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
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, events.File),
		[]byte(`{"time":"2026-01-02T03:04:05Z","kind":"started","level":"info","message":"weftd starts"}`+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	daemon.Env = append(os.Environ(), asDaemon+"="+socket, "WEFTD_CACHE_DIR="+state,
		"WEFTD_ETCD_ENDPOINTS=http://127.0.0.1:1")
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
	await.Stopped(t, daemon.Process.Pid)
	stopped := fmt.Sprintf("(pid %d, stopped: kill -CONT %[1]d", daemon.Process.Pid)
	var wg sync.WaitGroup
	for _, args := range []string{"status", "peers", "lease release 10.42.2.0/24", "cleanup"} {
		wg.Go(func() {
			_, stderr, err := weft(t, strings.Fields(args)...)
			if !errors.Is(err, control.ErrStuck) || errors.Is(err, control.ErrNoDaemon) ||
				!strings.Contains(err.Error(), stopped) || stderr != "" {
				t.Errorf("%s: %v %s", args, err, stderr)
			}
		})
	}
	wg.Go(func() {
		_, stderr, err := weft(t, "lease", "list") // nobody is at that endpoint either
		if !strings.Contains(stderr, stopped) || !strings.Contains(stderr, "[http://127.0.0.1:1]") || err == nil ||
			!strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("lease list: %v %s", err, stderr)
		}
	})
	wg.Go(func() {
		if out, stderr, err := weft(t, "events"); err != nil || !strings.Contains(out, "weftd starts") {
			t.Errorf("the history of a daemon that is stopped: %v %s\n%s", err, stderr, out)
		}
	})
	wg.Wait()
	if err := daemon.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the daemon answers again", answers)
}

// A daemon that accepts connections and never answers is named as one that is stopped, and nothing is asked
// of it that it may still do.
func TestDeafDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	sent := make(chan string, 10)
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends when the command gives up
				text, _ := io.ReadAll(c) // what came before it gave up
				sent <- string(text)
			}()
		}
	}()
	t.Setenv("WEFTD_CONTROL_SOCKET", socket)
	begun := time.Now()
	var wg sync.WaitGroup
	commands := []string{"status", "peers", "lease release 10.42.2.0/24", "capture --count 1"}
	for _, args := range commands {
		wg.Go(func() {
			_, stderr, err := weft(t, strings.Fields(args)...)
			if deaf := fmt.Sprintf("(pid %d, state ", os.Getpid()); !strings.Contains(stderr+fmt.Sprint(err), deaf) ||
				!errors.Is(err, control.ErrStuck) {
				t.Errorf("%s: %v %s", args, err, stderr)
			}
		})
	}
	wg.Wait()
	t.Logf("said after %s", time.Since(begun))
	for range commands {
		if text := <-sent; strings.HasPrefix(text, "POST") {
			t.Errorf("it may still do this: %s", text)
		}
	}
}

// If nobody counts for each peer, no number is shown, not even 0.
func TestUncountedIsNoZero(t *testing.T) {
	socket := start(t, &node{})
	out, _, err := weft(t, "peers", "--json", "--control-socket", socket)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(out, `"txPackets"`) != 2 || strings.Count(out, `"rxBytes"`) != 2 ||
		strings.Count(out, `"name"`) != 3 {
		t.Errorf("three peers, and two are counted:\n%s", out)
	}
}

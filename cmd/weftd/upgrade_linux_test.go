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
	"weft/cmd/weftd/internal/reexec"
	"weft/test/await"
	"weft/test/systemdtest"
)

// upgrade has weftd execute a program of $PATH, or one by its path.
func (h *host) upgrade(t *testing.T, program string) (control.Upgraded, error) {
	t.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return control.NewClient(h.socket()).Upgrade(t.Context(), control.UpgradeRequest{Binary: binary})
}

// portsKept waits until somebody keeps the host's ports.
func (h *host) portsKept(t *testing.T) {
	t.Helper()
	await.OK(t, "its ports are kept", func() error {
		if s, err := h.status(t); err != nil || s.Custody == nil || s.Custody.Ports != h.ports ||
			s.Custody.Fault != "" {
			return fmt.Errorf("%+v %w", s.Custody, err)
		}
		return nil
	})
}

// many is how many upgrades follow each other; WEFT_LONG=1 has a hundred.
func many() int {
	if long() {
		return 100
	}
	return 4
}

// TestUpgradesLeaveNothing upgrades a weftd again and again. It stays the same process, and has as many
// descriptors and as much memory after the last one as after the first.
func TestUpgradesLeaveNothing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	b.start(t)
	pid := b.awaitReady(t).PID
	first, memory := 0, 0
	for n := range many() {
		done, err := b.upgrade(t, "weftd")
		if err != nil {
			t.Fatal(err)
		}
		if done.PID != pid || done.FromPID != pid || done.Ports != 2 {
			t.Errorf("%+v, and pid %d was started", done, pid)
		}
		b.awaitReady(t)
		b.portsKept(t)
		if n == 0 {
			first, memory = restingDescriptors(t, pid), memoryOf(t, pid)
		}
	}
	last := 0
	await.OK(t, "it has as many descriptors", func() error {
		if last = descriptorsOf(t, pid); last > first {
			return fmt.Errorf("%d, and %d after the first", last, first)
		}
		return nil
	})
	after := memoryOf(t, pid)
	t.Logf("after the first of %d: %d descriptors, %d KiB; after the last: %d, %d KiB", many(), first, memory,
		last, after)
	if after > memory*5/4 {
		t.Errorf("%d KiB, and %d after the first", after, memory)
	}
	a.reaches(t, b)
	if code := b.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestUpgradeBeginsTheEmbeddedEtcdAnew upgrades the weftd that has the store. The store is back, and the
// process of before is no zombie.
func TestUpgradeBeginsTheEmbeddedEtcdAnew(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	a.start(t)
	pid := a.awaitReady(t).PID
	if _, err := a.upgrade(t, "weftd"); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the store answers", func() error {
		s, err := a.status(t)
		if err == nil && (s.PID != pid || !s.Ready || s.Lease == nil || !s.Lease.Held) {
			err = fmt.Errorf("pid %d, ready %v, lease %+v", s.PID, s.Ready, s.Lease)
		}
		return err
	})
	await.OK(t, "no child is a zombie", func() error {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			return err
		}
		for _, list := range lists {
			b, _ := os.ReadFile(list) // a thread may have ended
			for _, child := range strings.Fields(string(b)) {
				if stat, err := os.ReadFile("/proc/" + child + "/stat"); err == nil &&
					strings.Contains(string(stat), ") Z ") {
					return fmt.Errorf("%s", stat)
				}
			}
		}
		return nil
	})
}

// TestUpgradeWithoutANetwork upgrades a weftd that waits for a network configuration, as after an upgrade it
// still does.
func TestUpgradeWithoutANetwork(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	b.args = append(b.args, "--etcd-prefix=/another/network")
	b.start(t)
	for range 2 {
		await.OK(t, "it waits", func() error {
			s, err := b.status(t)
			if err == nil && (s.Ready || len(s.NotReady) == 0) {
				err = fmt.Errorf("ready %v: %q", s.Ready, s.NotReady)
			}
			return err
		})
		if done, err := b.upgrade(t, "weftd"); err != nil || done.PID != done.FromPID {
			t.Errorf("%+v, %v", done, err)
		}
	}
}

// restingDescriptors waits until a process has as many as before: some come and go with what is asked of the
// kernel.
func restingDescriptors(t *testing.T, pid int) (n int) {
	t.Helper()
	await.OK(t, "descriptors come to rest", func() error {
		before := n
		if n = descriptorsOf(t, pid); n != before {
			return fmt.Errorf("%d, and %d before", n, before)
		}
		return nil
	})
	return n
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	l, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// memoryOf is what a process has in memory and no file has, in KiB.
func memoryOf(t *testing.T, pid int) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nRssAnon:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatalf("%v: %s", err, status)
	}
	return kib
}

// asks are the lines of a script that has a weftd, %[1]s, answer what an upgrade asks before it executes the
// script.
const asks = `case "$*" in *--version*|*upgrade-format*) exec %[1]s "$@";; esac; `

// TestUpgradeToWhatDoesNotServe upgrades to programs that are refused, and to some that fail only in weftd's
// place. weftd goes on each time, in the same process, with what it has open. Packets go on
// meanwhile, and where the program hangs in weftd's place, when that is given up.
func TestUpgradeToWhatDoesNotServe(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	b.start(t)
	pid := b.awaitReady(t).PID
	b.portsKept(t)
	a.reaches(t, b)
	weftd, err := exec.LookPath("weftd")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe") // nobody writes to it
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	answers := fmt.Sprintf(asks, weftd)
	for _, tt := range []struct {
		name, script string
		stands       time.Duration // how long packets may wait
	}{
		{"no weftd", "echo hello", 0},
		{"dies at once", "exit 1", 0},
		{"reads another format", `case "$*" in *--version*) exec ` + weftd + ` "$@";; esac; echo 99`, 0},
		{"does not take a flag", "exec " + weftd + ` "$@" --no-such-flag`, 0},
		{"hangs", "exec sleep 60", 0},
		{"hangs in its place", answers + "exec " + weftd + ` "$@" --environment-file=` + pipe, reexec.StartPatience},
		{"fails in its place", answers + "exec " + weftd + ` "$@" --no-such-flag`, 0},
	} {
		path := filepath.Join(dir, filepath.Base(t.TempDir()))
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		streams := flows(t, a, b)
		if _, err := b.upgrade(t, path); !errors.Is(err, control.ErrRefused) {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, f := range streams {
			f.Passes(100)
			r := f.Stop()
			if r.LongestGap > tt.stands+reexec.Patience-reexec.StartPatience ||
				tt.stands == 0 && r.Lost > 0 && r.LongestGap < fits {
				t.Errorf("%s: %s", tt.name, r)
			}
		}
		if s := b.awaitReady(t); s.PID != pid {
			t.Errorf("%s: pid %d serves, and %d was started", tt.name, s.PID, pid)
		}
		b.portsKept(t)
		a.reaches(t, b)
	}
}

// TestReplace starts a second weftd with --replace beside the first, which stops and keeps its ports for the
// second.
func TestReplace(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	manager := systemdtest.New(t, 64)
	b.manager, b.env = manager, []string{"WATCHDOG_USEC=100000"}
	b.start(t)
	b.manager, b.env = nil, nil
	b.awaitReady(t)
	b.portsKept(t)
	old := b.cmd
	b.start(t, "--replace")
	t.Cleanup(func() { _ = old.Process.Kill(); _ = old.Wait() })
	await.OK(t, "the second one serves", func() error {
		if s, err := b.status(t); err != nil || s.PID != b.cmd.Process.Pid {
			return fmt.Errorf("pid %d: %w", s.PID, err)
		}
		return nil
	})
	b.awaitReady(t)
	a.reaches(t, b)
	if s, err := b.status(t); err != nil || s.Custody == nil || s.Custody.PID != old.Process.Pid {
		t.Errorf("%+v %v: the first one (pid %d) does not keep what it had", s.Custody, err, old.Process.Pid)
	}
	before := manager.Beats()
	await.OK(t, "the first one answers its watchdog", func() error {
		if n := manager.Beats() - before; n < 2 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	if err := old.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := old.Wait(); err != nil {
		t.Errorf("the first one: %v", err)
	}
	b.portsKept(t)
	a.reaches(t, b)
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weft/test/await"
)

// The embedded etcd is a process of its own. It ends with weftd, however that ends, so that the next weftd
// has its store at once. If etcd alone ends, weftd says so, goes on forwarding and starts etcd again.
func TestEmbeddedEtcdLivesAndDiesWithWeftd(t *testing.T) {
	a, b := pair(t)
	a.args = append(a.args, "--holder-timeout=0") // its etcd is to be its only child
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	b.awaitReady(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		etcd := a.etcd(t)
		a.stop(t, sig)
		a.start(t)
		await.OK(t, "the former etcd is gone", func() error { return gone(etcd) })
		if a.awaitReady(t); a.etcd(t) == etcd {
			t.Errorf("after %v the etcd is the former one", sig)
		}
	}
	if strings.Contains(a.log.String(), "does not run") {
		t.Error("a start found the former etcd in its place")
	}

	etcd := a.etcd(t)
	if err := syscall.Kill(etcd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "word of its end", func() error {
		if log := a.log.String(); !strings.Contains(log, "forwarding") || !strings.Contains(log, "signal: killed") {
			return errors.New("the log does not say how etcd ended")
		}
		return nil
	})
	await.OK(t, "the store again", func() error {
		s, err := a.status(t)
		if err == nil && !s.Store.Connected {
			err = errors.New("it is not connected to its store")
		}
		return err
	})
	if a.etcd(t) == etcd {
		t.Error("the etcd is the one that was killed")
	}
	a.reaches(t, b)
}

// etcd logs where weftd does, and weftd's error is the reason why etcd ended.
func TestEmbeddedEtcdSaysWhatIsWrong(t *testing.T) {
	a, _ := pair(t)
	a.start(t, "--v=1")
	a.awaitReady(t)
	if !strings.Contains(a.log.String(), "became leader") {
		t.Error("etcd's own messages are not in the log")
	}
	a.stop(t, syscall.SIGTERM)
	wals, err := filepath.Glob(a.dir + "/etcd/member/wal/*.wal")
	if err != nil || len(wals) == 0 {
		t.Fatalf("no write-ahead log: %v", err)
	}
	for _, name := range wals {
		if err := os.WriteFile(name, []byte(strings.Repeat("broken", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.start(t, "--cache-dir="+t.TempDir(), "--node-id=other")
	if code := wait(a); code != 1 || !strings.Contains(a.log.String(), "weftd: embedded etcd in "+
		a.dir+"/etcd") {
		t.Errorf("on broken data: exit status %d", code)
	}
	a.env = append(a.env, "PATH=/nonexistent")
	a.start(t)
	if code := wait(a); code != 1 || !strings.Contains(a.log.String(), "$PATH") {
		t.Errorf("without the program: exit status %d", code)
	}
}

// wait waits for h's weftd, which ends by itself, and returns its exit status.
func wait(h *host) int {
	_ = h.cmd.Wait() // the status is what is asked for
	code := h.cmd.ProcessState.ExitCode()
	h.cmd = nil
	return code
}

// etcd returns the pid of h's embedded etcd.
func (h *host) etcd(t *testing.T) (pid int) {
	t.Helper()
	await.OK(t, h.name+"'s etcd", func() error {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", h.cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err != nil {
				return err
			}
			if f := strings.Fields(string(text)); len(f) > 0 {
				pid, err = strconv.Atoi(f[0])
				return err
			}
		}
		return errors.New("weftd has no child")
	})
	return pid
}

// gone returns nil if there is no process pid, or if it is a zombie.
func gone(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	if _, rest, _ := strings.Cut(string(text), ") "); strings.HasPrefix(rest, "Z") {
		return nil
	}
	return fmt.Errorf("process %d lives", pid)
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/weftd/internal/cipher"
	"weft/test/await"
)

const encrypted = `{"Type":"wireguard","Userspace":"always"}`

// encryptedPair is pair with type wireguard in user space.
func encryptedPair(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = pairOf(t, encrypted)
	a.ports, b.ports = 1, 1
	return a, b
}

// What is sent while weftd is replaced, is stopped, or is killed, and started again, arrives, whoever keeps the process that encrypts: it is the
// same one all the time, with the same sessions. When nobody keeps it any more it ends.
func TestWireGuardOutlivesWeftd(t *testing.T) {
	t.Parallel()
	a, b := encryptedPair(t)
	a.start(t)
	a.awaitReady(t)
	for _, by := range []string{custody.ByHolder, custody.ByManager} {
		b.begin(t, by)
		a.reaches(t, b)
		s := a.streams(t, b)
		process := b.cipher(t)
		for _, k := range b.kinds(t, by) {
			k.most = 0 // nobody who is killed has a packet in hand
			k.replaced(t, a, b, by).over(t, by, s)
			s.move(t)
			if now := b.cipher(t); now != process {
				t.Errorf("%s, kept by %s: process %d encrypts, and not %d", k.name, by, now, process)
			}
		}
		s.end(t)
		b.stop(t, syscall.SIGTERM)
		if by == custody.ByManager {
			b.manager.Drop()
		} else if _, _, err := custody.End(context.WithoutCancel(t.Context()), custody.SocketFor(b.socket())); err != nil {
			t.Error(err)
		}
		b.noCipher(t)
	}
}

// A process that encrypts and dies is replaced at once, and that is counted and said; so is one that shall be. One that nobody keeps ends with weftd.
func TestWireGuardProcessIsReplaced(t *testing.T) {
	t.Parallel()
	a, b := encryptedPair(t)
	a.start(t)
	a.awaitReady(t)
	b.start(t, "--holder-timeout=0")
	b.awaitReady(t)
	a.reaches(t, b)
	before := b.cipher(t)
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "another process", func() error {
		if now := b.ciphers(t); len(now) != 1 || now[0] == before {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	a.reaches(t, b)
	b.reaches(t, a)
	b.awaitReady(t)
	if code, body, err := b.get(t, "/metrics"); err != nil || code != 200 || !strings.Contains(body, "\nweft_wireguard_process_ends_total 1\n") {
		t.Errorf("status %d, %v: %s", code, err, body)
	}
	if log := b.log.String(); !strings.Contains(log, "event=device_repaired ") {
		t.Error("its end is not in the log")
	}
	// Whoever asks for another one gets it, and that is no end of its own.
	now := b.cipher(t)
	done, err := control.NewClient(b.socket()).UpgradeEncryption(t.Context())
	await.True(t, "one process encrypts", func() bool { return len(b.ciphers(t)) == 1 }) // the one before lets go of the TUN before it ends
	if err != nil || len(done.Before) != 1 || done.Before[0].PID != now || len(done.Processes) != 1 || done.Processes[0].PID != b.cipher(t) || b.cipher(t) == now {
		t.Errorf("%+v, %v; before %d, now %d", done, err, now, b.cipher(t))
	}
	a.reaches(t, b)
	b.reaches(t, a)
	if _, body, err := b.get(t, "/metrics"); err != nil || !strings.Contains(body, "\nweft_wireguard_process_ends_total 1\n") {
		t.Errorf("%v: %s", err, body)
	}
	// One that is stopped carries nothing. weftd asks it when something changes, and within half a minute anyway.
	stopped := b.cipher(t)
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Who looks meanwhile sees what it said last.
	if code, body, err := b.get(t, "/metrics"); err != nil || code != 200 || !strings.Contains(body, "\nweft_peer_latest_handshake_timestamp_seconds{") {
		t.Errorf("status %d, %v: %s", code, err, body)
	}
	if err := b.ns.Run(exec.Command("ip", "link", "set", "flannel-wg", "mtu", "1300")); err != nil {
		t.Fatal(err)
	}
	await.Within(t, 3*await.Patience, "another process", func() error {
		if now := b.ciphers(t); len(now) != 1 || now[0] == stopped {
			return fmt.Errorf("%v", now)
		}
		return nil
	})
	a.reaches(t, b)
	b.reaches(t, a)
	b.stop(t, syscall.SIGKILL)
	b.noCipher(t)
}

// ciphers are the processes that encrypt for the host.
func (h *host) ciphers(t *testing.T) (pids []int) {
	t.Helper()
	own, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", h.ns.FD()))
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		command, err := os.ReadFile(dir + "/cmdline")
		if words := strings.Split(string(command), "\x00"); err != nil || !slices.Contains(words, cipher.Verb) || !slices.Contains(words, "flannel-wg") {
			continue
		}
		its, err := os.Stat(dir + "/ns/net")
		if err != nil || !os.SameFile(its, own) {
			continue // it has ended just now
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// cipher is the one that there is.
func (h *host) cipher(t *testing.T) int {
	t.Helper()
	pids := h.ciphers(t)
	if len(pids) != 1 {
		t.Fatalf("processes %v encrypt, want one", pids)
	}
	return pids[0]
}

func (h *host) noCipher(t *testing.T) {
	t.Helper()
	await.OK(t, "nobody encrypts", func() error {
		if pids := h.ciphers(t); len(pids) > 0 {
			return fmt.Errorf("%v", pids)
		}
		return nil
	})
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/test/await"
)

// commandConfig is a network configuration whose command makes a file.
func commandConfig(made string) string {
	return fmt.Sprintf(
		`{"Network":"10.42.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"touch %s"}}`, made)
}

// alone makes a host whose weftd has an embedded store, with config as its network configuration.
func alone(t *testing.T, config string) *host {
	t.Helper()
	a, _ := wired(t)
	netconf := filepath.Join(a.dir, "net.json")
	if err := os.WriteFile(netconf, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(a.dir, 0o755); err != nil { // others can come as far as they may
		t.Fatal(err)
	}
	a.args = append(a.args, "--embedded-etcd", "--embedded-etcd-dir", a.dir+"/etcd",
		"--net-config-path", netconf)
	return a
}

// listening returns the TCP ports on which somebody listens in h's namespace.
func (h *host) listening(t *testing.T) []uint16 {
	t.Helper()
	var out []uint16
	err := h.ns.Do(func() error {
		for _, name := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			for s := bufio.NewScanner(f); s.Scan(); {
				var sl, state, local, address string
				var port uint16
				if n, _ := fmt.Sscan(s.Text(), &sl, &local, &address, &state); n == 4 && state == "0A" {
					if _, err := fmt.Sscanf(local[strings.LastIndexByte(local, ':')+1:], "%x", &port); err != nil {
						return err
					}
					out = append(out, port)
				}
			}
			_ = f.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// writeConfig writes the configuration by TCP, as anybody can who reaches an etcd in h's namespace.
func (h *host) writeConfig(t *testing.T, port uint16, config string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := h.client(t, fmt.Sprintf("127.0.0.1:%d", port)).Put(ctx, "/coreos.com/network/config", config)
	return err
}

// A user without rights cannot become root by writing to the store that a daemon runs for itself.
func TestNobodyWritesTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	a := alone(t, `{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`)
	a.start(t)
	a.awaitReady(t)
	for _, port := range a.listening(t) {
		if err := a.writeConfig(t, port, commandConfig(made)); err == nil {
			t.Errorf("the configuration was written by way of port %d", port)
		}
	}
	a.stop(t, syscall.SIGTERM)
	a.start(t)
	a.awaitReady(t)
	if _, err := os.Stat(made); err == nil {
		t.Error("the command of a stranger ran")
	}
}

// Commands in the store are run if nobody but root could put them there, else only if the operator said so.
func TestCommandsInTheStore(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	a := alone(t, commandConfig(made))
	ran := func(want bool) {
		t.Helper()
		if _, err := os.Stat(made); (err == nil) != want {
			t.Errorf("the command ran: %v, want %v", err == nil, want)
		}
		_ = os.Remove(made)
	}
	a.start(t)
	a.awaitReady(t)
	ran(true)
	a.stop(t, syscall.SIGTERM)
	a.args = append(a.args, "--embedded-etcd-listen=127.0.0.1:2379")
	a.log.b.Reset()
	a.start(t)
	await.OK(t, "weftd says why it runs no commands", func() error {
		if log := a.log.String(); !strings.Contains(log, "127.0.0.1:2379") ||
			!strings.Contains(log, "give --allow-extension") {
			return errors.New("it does not")
		}
		return nil
	})
	ran(false)
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
	a.start(t, "--allow-extension")
	a.awaitReady(t)
	ran(true)
}

// --check says, before weftd starts, whether it would run the commands, and who can write to the store.
func TestCheckSaysWhoMayWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	netconf := filepath.Join(dir, "net.json")
	if err := os.WriteFile(netconf, []byte(commandConfig(filepath.Join(dir, "made"))), 0o600); err != nil {
		t.Fatal(err)
	}
	const refused, door, anyone = "- type extension: its commands are not run",
		"store: http://192.0.2.1:2379 is not TLS", "and be root here (--allow-extension)"
	for _, tt := range []struct {
		args  string
		wants map[string]bool
	}{
		{"--etcd-endpoints=http://192.0.2.1:2379", map[string]bool{refused: true, door: true, anyone: false}},
		{"--etcd-endpoints=http://192.0.2.1:2379 --allow-extension",
			map[string]bool{refused: false, door: true, anyone: true}},
		{"--embedded-etcd --embedded-etcd-dir=" + dir, map[string]bool{refused: false, door: false, anyone: false}},
		{"--etcd-endpoints=http://u:hunter2@192.0.2.1:2379",
			map[string]bool{refused: true, "http://xxxxx@192.0.2.1:2379": true, "hunter2": false}},
	} {
		out, _, _ := call(t, append(strings.Fields(tt.args), "--check", "--offline", "--cache-dir="+dir,
			"--net-config-path="+netconf)...)
		for text, want := range tt.wants {
			if strings.Contains(out, text) != want {
				t.Errorf("%s: %q is there: %v, want %v:\n%s", tt.args, text, !want, want, out)
			}
		}
	}
}

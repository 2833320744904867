package test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// readyz asks a node, over its loopback.
func readyz(n *lab.Node) (string, error) {
	resp, err := n.HTTPClient().Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", lab.HealthPort))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Packets need none of the files that a node keeps. With a read-only /run and a full disk a node starts, and
// its pods have their network. It reports what it has to do without, and opens it as soon as it can.
func TestForwardingNeedsNoFiles(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{})
	n := l.Node(1)
	a, b := n.Pods[0], l.Node(2).Pods[0]
	saysAll := func(what string, want ...string) {
		t.Helper()
		await.OK(t, what, func() error {
			body, err := readyz(n)
			if err == nil && !containsAll(body, want) {
				err = fmt.Errorf("want %q in %s", want, body)
			}
			return err
		})
		reach(t, await.Patience, a, b, 4)
		reach(t, await.Patience, b, a, 4)
	}
	inside := func(f func() error) {
		t.Helper()
		if err := n.NS.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	// The mounts are the node's own; the test sees the directory as it is.
	if err := n.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	full := filepath.Join(n.CacheDir, "full")
	inside(func() error {
		return errors.Join(
			unix.Mount(n.Dir, n.Dir, "", unix.MS_BIND, ""),
			unix.Mount("", n.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
			unix.Mount("weft-full", n.CacheDir, "tmpfs", 0, "size=4k"),
			os.WriteFile(full, make([]byte, 4096), 0o600))
	})
	if err := n.Daemon.Start(); err != nil {
		t.Fatal(err)
	}
	saysAll("ready on a read-only disk and a full one", "flanneld is ready", "control socket",
		"read-only file system", "state directory", "not saved", "no space left")
	if err := os.Remove(n.SubnetFile); err != nil {
		t.Fatal(err)
	}
	saysAll("not ready without a subnet.env", "flanneld is not ready yet", "subnet file", n.SubnetFile,
		"read-only file system")
	inside(func() error {
		return errors.Join(unix.Mount("", n.Dir, "", unix.MS_REMOUNT|unix.MS_BIND, ""), os.Remove(full))
	})
	status(t, n, await.Patience, func(s statusJSON) error {
		if notes := strings.Join(s.Notes, "\n"); !s.Ready || strings.Contains(notes, "control socket") ||
			strings.Contains(notes, "not saved") {
			return fmt.Errorf("ready %v %q, notes %q", s.Ready, s.NotReady, notes)
		}
		return nil
	})
	reach(t, await.Patience, a, b, 4)
}

package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
)

// cleanup --files removes the files that weftd writes, those included that it had not finished when it was killed,
// and no others.
func TestCleanupTakesFilesOfOursOnly(t *testing.T) {
	cache, run := t.TempDir(), t.TempDir()
	f := &cleanupFlags{cacheDir: cache, subnetFile: filepath.Join(run, "subnet.env")}
	names := []string{"lease.json", ".lease.json.1234", "node-id", ".node-id.5", ".kube-node.json.6", "extension.json.new"}
	stays := []string{".lease.json.mine", "notes", ".bashrc.1"}
	for _, name := range append(slices.Clone(names), stays...) {
		if err := os.WriteFile(filepath.Join(cache, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(run, ".subnet.env.7"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var c cleaned
	if err := f.cleanFiles(&c); err != nil || len(c.Removed) != len(names)+1 {
		t.Errorf("%v, removed %q", err, c.Removed)
	}
	left, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range left {
		got = append(got, e.Name())
	}
	slices.Sort(stays)
	if !slices.Equal(got, stays) {
		t.Errorf("%q are left, want %q", got, stays)
	}
	if left, err := os.ReadDir(run); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// weft cleanup has the holder of a weftd that is away end; a dry run only says that there is one.
func TestCleanupEndsTheHolder(t *testing.T) {
	f := &cleanupFlags{}
	f.socket = filepath.Join(t.TempDir(), "weftd.sock")
	path := custody.SocketFor(f.socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	ended := make(chan error, 1)
	go func() {
		ended <- custody.Hold(t.Context(), custody.HoldOptions{Socket: path, Listener: l, Owner: "x", Timeout: time.Hour})
	}()
	kept := custody.Open(t.Context(), custody.Options{Control: f.socket, Owner: "x", Timeout: time.Hour, Getenv: func(string) string { return "" }, Logger: slog.New(slog.DiscardHandler)})
	if err := kept.Keep(t.Context(), "a", nil, []int{0}); err != nil {
		t.Fatal(err)
	}
	kept.Close()
	for _, dry := range []bool{true, false} {
		f.dryRun = dry
		var c cleaned
		if err := f.cleanHolder(t.Context(), &c); err != nil || len(c.Removed) != 1 || !strings.Contains(c.Removed[0], "1 descriptors of 1 pods") {
			t.Errorf("dry run %v: %v, %q", dry, err, c.Removed)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var c cleaned
	if err := f.cleanHolder(t.Context(), &c); err != nil || len(c.Removed) != 0 {
		t.Errorf("none is left: %v, %q", err, c.Removed)
	}
}

func TestStatusSaysWhoKeepsDescriptors(t *testing.T) {
	for want, k := range map[string]*control.Custody{
		"":                    nil,
		"a holder, pid 7":     {By: custody.ByHolder, PID: 7, Items: 2, Descriptors: 2},
		"the service manager": {By: custody.ByManager, Items: 2, Descriptors: 2, Discarded: 3},
		"kept by nobody":      {Items: 2, Descriptors: 2, Fault: "because"},
	} {
		var got strings.Builder
		custodyRows(func(name, format string, a ...any) { fmt.Fprintf(&got, name+" "+format+"\n", a...) }, k)
		if !strings.Contains(got.String(), want) || (k == nil) != (got.Len() == 0) || k != nil && !strings.Contains(got.String(), k.Fault) {
			t.Errorf("%+v: %q", k, got.String())
		}
	}
}

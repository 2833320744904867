package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
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

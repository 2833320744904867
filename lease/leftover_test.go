package lease_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weft/lease"
)

func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"lease.json", ".lease.json.123", ".lease.json.4", ".lease.json.", ".lease.json.12a", ".lease.json.1.2", "lease.json.5",
		".node-id.77", ".other.json.1", ".lease.jsonx.1"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".lease.json.6"), nil, 0o600); err != nil { // being written
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".lease.json.7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, ".lease.json.8")); err != nil {
		t.Fatal(err)
	}
	got, err := lease.Leftovers(time.Minute, filepath.Join(dir, "lease.json"), filepath.Join(dir, "node-id"), filepath.Join(dir, "none", "x"))
	for i := range got {
		got[i] = filepath.Base(got[i])
	}
	if want := []string{".lease.json.123", ".lease.json.4", ".node-id.77"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if all, err := lease.Leftovers(-time.Minute, filepath.Join(dir, "lease.json")); err != nil || len(all) != 3 {
		t.Errorf("of any age: %q, %v", all, err)
	}
}

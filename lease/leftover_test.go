package lease_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weft/lease"
)

// What processes that were killed left beside the file goes with the next write, and nothing else does.
func TestLeftoversOfTheKilledGo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	old := time.Now().Add(-time.Hour)
	for name, at := range map[string]time.Time{
		".state.123": old, ".state.4567": old, ".state.89": time.Now(), ".state.bak": old, ".state.": old, ".other.12": old, "state.12": old,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.WriteFile(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	if want := []string{".other.12", ".state.", ".state.89", ".state.bak", "state", "state.12"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

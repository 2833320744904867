package subnetenv_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weft/lease/subnetenv"
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
	if err := subnetenv.Write(path, subnetenv.File{Network: netip.MustParsePrefix("10.42.0.0/16"), Subnet: netip.MustParsePrefix("10.42.1.1/24"), MTU: 1400}); err != nil {
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

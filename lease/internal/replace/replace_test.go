package replace_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"weft/lease/internal/replace"
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
	if err := replace.File(path, 0o640, 0o700, func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err != nil {
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

// The file has the mode and what was written; if that fails, what was there stays, and nothing is left beside it.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "state")
	if err := replace.File(path, 0o640, 0o700, func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	if err := replace.File(path, 0o600, 0o700, func(w io.Writer) error { _, _ = w.Write([]byte("half")); return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "x" {
		t.Errorf("got %q, %v", b, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	at, err := os.Stat(dir)
	if err != nil || at.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", at.Mode(), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("beside it: %v, %v", all, err)
	}
}

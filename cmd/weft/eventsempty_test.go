package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/events"
)

// Of a history that is there and empty, as on a full disk, it is not said that flags left everything out.
func TestEventsOfAnEmptyHistory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, events.File), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, err := weft(t, "events", "--cache-dir", dir)
	if err != nil || out != "" || !strings.Contains(stderr, dir) || strings.Contains(stderr, "--since") {
		t.Errorf("%q %q %v", out, stderr, err)
	}
}

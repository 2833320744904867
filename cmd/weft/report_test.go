package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/bugreport"
)

// The archive is its owner's alone, is not written over, and is listed.
func TestReport(t *testing.T) {
	t.Setenv(asCommand, "1") // the test binary is the weft that it asks
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	socket := start(t, &node{})
	out, _, err := weft(t, "report", "--json", "-o", file, "--control-socket", socket)
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		File string
		bugreport.Manifest
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.SchemaVersion != 1 || m.File != file {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range m.Parts {
		if ours := strings.HasPrefix(p.Name, "status") || strings.HasPrefix(p.Name, "peers"); ours &&
			(p.Error != "" || p.Bytes < 100) {
			t.Errorf("%+v", p)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() < 1000 {
		t.Errorf("%v %v", info, err)
	}
	if _, _, err := weft(t, "report", "-o", file, "--control-socket", "/nonexistent/s"); err == nil ||
		!strings.Contains(err.Error(), "exists") {
		t.Errorf("a file that is there: %v", err)
	}
}

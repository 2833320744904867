// Package golden compares what a test printed with a file in its package's testdata.
package golden

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Flag adds -update to the test program. TestMain calls it before it runs the tests.
func Flag() { flag.Bool("update", false, "rewrite testdata/*.golden") }

// Check compares got with testdata/NAME.golden, which -update writes.
func Check(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got:\n%s\nwant:\n%s", file, got, want)
	}
}

package options

import (
	"errors"
	"flag"
	"io"
	"testing"

	"weft/test/document"
)

// TestCommandsInDocumentsAreUnderstood parses each command line of weftd in README and docs as weftd would.
func TestCommandsInDocumentsAreUnderstood(t *testing.T) {
	lines, err := document.Commands("../../..", "weftd")
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 5 {
		t.Errorf("only %d command lines were found", len(lines))
	}
	for _, l := range lines {
		c := defaults()
		fs := newFlagSet(&c)
		fs.SetOutput(io.Discard)
		if faults, err := parseArgs(fs, l.Args); err != nil && !errors.Is(err, flag.ErrHelp) || len(faults) > 0 {
			t.Errorf("%s: weftd %q: %v %v", l.Where, l.Args, err, faults)
		}
	}
}

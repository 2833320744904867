package main

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"

	"weft/cmd/weft/internal/cli"
	"weft/test/document"
)

// TestCommandsInDocumentsAreUnderstood parses each command line of weft in README and docs as weft would.
func TestCommandsInDocumentsAreUnderstood(t *testing.T) {
	lines, err := document.Commands("../..", "weft")
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 40 {
		t.Errorf("only %d command lines were found", len(lines))
	}
	for _, l := range lines {
		root := rootCommand(cli.NewApp(""))
		cli.Complete(root)
		cmd, rest, err := root.Find(l.Args)
		switch {
		case err != nil:
		case !cmd.Runnable() && l.Whole && len(rest) == 0:
			err = cli.Usagef("it wants a command below it")
		default:
			if err = cmd.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
				continue
			}
			if err == nil && l.Whole {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
		}
		if err != nil {
			t.Errorf("%s: weft %q: %v", l.Where, l.Args, err)
		}
	}
}

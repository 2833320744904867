package main

import (
	"fmt"
	"io"

	"weft/cmd/internal/diagnose"
)

// printFinding prints the fact, and below it the cause that was observed, or each that is not excluded.
func printFinding(w io.Writer, subject string, f diagnose.Finding) error {
	_, err := fmt.Fprintf(w, "\n%s: %s\n", clean(subject), clean(f.Fact))
	printOpen(w, "  ", f.All())
	return err
}

// printOpen prints each cause with the command that tells.
func printOpen(w io.Writer, margin string, causes []diagnose.Cause) {
	for _, c := range causes {
		word := "not excluded"
		if c.Observed {
			word = "cause"
		}
		fmt.Fprintf(w, "%s%s: %s\n%s  %s: %s\n", margin, word, clean(c.Cause), margin, clean(c.Where),
			clean(c.Command))
	}
}

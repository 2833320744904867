package cli

import (
	"fmt"
	"io"

	"weft/cmd/internal/diagnose"
)

// PrintFinding prints the fact, and below it the cause that was observed, or each that is not excluded.
func PrintFinding(w io.Writer, subject string, f diagnose.Finding) error {
	_, err := fmt.Fprintf(w, "\n%s: %s\n", Clean(subject), Clean(f.Fact))
	PrintOpen(w, "  ", f.Causes)
	return err
}

// PrintOpen prints each cause with the command that tells.
func PrintOpen(w io.Writer, margin string, causes []diagnose.Cause) {
	for _, c := range causes {
		word := "not excluded"
		if c.Observed {
			word = "cause"
		}
		fmt.Fprintf(w, "%s%s: %s\n%s  %s: %s\n", margin, word, Clean(c.Cause), margin, Clean(c.Where),
			Clean(c.Command))
	}
}

package lab

import (
	"errors"
	"fmt"
	"strings"
)

// Explain is err's text and, if a node is to blame, the last lines of its log and where
// the rest is.
func Explain(err error) string {
	var b strings.Builder
	b.WriteString(err.Error())
	var fault *NodeError
	if errors.As(err, &fault) {
		fmt.Fprintf(&b, "\n\nThe last lines of %s:\n", fault.LogFile)
		for line := range strings.Lines(string(fault.LogTail)) {
			b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

package lab

import (
	"errors"
	"fmt"
	"strings"
)

// Explain returns err's text and, if err blames a node, the last lines of that node's log and where
// the rest of it is.
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

package show

import (
	"fmt"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// controllerRows prints what the operator's controller made of the routes, and nothing where there is none.
func controllerRows(row func(name, format string, a ...any), c *control.Controller, now time.Time) {
	if c == nil {
		return
	}
	line := c.Controller
	if c.Taken.IsZero() {
		line += ", has taken no view yet"
	} else {
		line += fmt.Sprintf(", %d routes accepted", c.Accepted)
		for _, n := range []struct {
			count int
			what  string
		}{{c.Pending, "pending"}, {c.Refused, "REFUSED"}} {
			if n.count > 0 {
				line += fmt.Sprintf(", %d %s", n.count, n.what)
			}
		}
		line += ", said " + cli.Ago(c.Taken, now)
	}
	row("controller", "%s", line)
	if c.Fault != "" {
		row("", "%s, since %s", c.Fault, cli.Span(now.Sub(c.Since)))
	}
}

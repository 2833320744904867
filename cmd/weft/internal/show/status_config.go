package show

import (
	"strings"

	"weft/cmd/internal/control"
)

// configRows prints how the store's network configuration differs from the one in use, and its unknown
// keys. It prints nothing if there is nothing of that.
func configRows(row func(name, format string, a ...any), s control.Status) {
	c, name := s.Config, "config"
	say := func(format string, a ...any) {
		row(name, format, a...)
		name = ""
	}
	if c.Differs {
		switch {
		case c.LastGood:
			say("THE LAST GOOD ONE, since this start could not use the %s's; a good one is taken up by itself",
				storeName(s.Store))
		case len(c.Faults) > 0:
			say("the one that the %s had before: what it has now is not good, and no restart takes it up",
				storeName(s.Store))
		default:
			say("not the %s's: restart weftd to apply that", storeName(s.Store))
		}
		say("in use: %s", oneLine(c.InUse))
		if c.Other == "" {
			say("%s: none", storeName(s.Store))
		} else {
			say("%s: %s", storeName(s.Store), oneLine(c.Other))
		}
	}
	for _, f := range c.Faults {
		say("%s", f)
	}
	for _, f := range c.Changes {
		say("a restart changes %s", f)
	}
	for _, f := range c.Unknown {
		say("%s", f)
	}
}

// oneLine is a configuration's text, which may have been written on several lines, for a row.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

package show

import (
	"fmt"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// rulesRows prints the state of the firewall rules, and nothing before there are any.
func rulesRows(row func(name, format string, a ...any), r control.Rules) {
	if r.Firewall == "" && r.Error == "" {
		return
	}
	line := cli.OrDash(r.Firewall)
	if !r.InPlace {
		line += ", NOT IN PLACE"
	}
	for _, n := range []struct {
		count uint64
		what  string
	}{{r.Repaired, "put back %d times"}, {r.PodsDropped, "%d dropped from pods to the overlay's port"},
		{r.StrangersDropped, "%d dropped from strangers"}, {r.PlainDropped, "%d dropped that were not encrypted"}} {
		if n.count > 0 {
			line += fmt.Sprintf(", "+n.what, n.count)
		}
	}
	row("rules", "%s", line)
	if r.Error != "" {
		row("", "%s", r.Error)
	}
	for _, n := range r.Notes {
		row("", "%s", n)
	}
}

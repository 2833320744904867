package show

import (
	"fmt"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// podRows say how many pods are attached directly, and that something is wrong with some.
func podRows(row func(name, format string, a ...any), p *control.PodCounts) {
	if p == nil {
		return
	}
	line := fmt.Sprintf("%d attached directly", p.Attached)
	if p.Waiting > 0 {
		line += fmt.Sprintf(", %d without a port", p.Waiting)
	}
	if p.Missing > 0 {
		line += fmt.Sprintf(", %d MISSING since a restart", p.Missing)
	}
	row("pods", "%s", line)
	if p.Problems > 0 {
		row("", "something is wrong with %d of them: weft pods says what, and what to do", p.Problems)
	}
	row("", "sent %d (%s), received %d (%s), refused %d", p.SentPackets, cli.Size(p.SentBytes), p.ReceivedPackets,
		cli.Size(p.ReceivedBytes), p.RefusedPackets)
	for _, b := range p.Busiest {
		name := b.Name
		if name == "" {
			name = b.ID
		}
		row("", "  %s %s: sent %d (%s), received %d (%s), refused %d", cli.Clean(name), cli.Clean(b.Interface),
			b.SentPackets, cli.Size(b.SentBytes), b.ReceivedPackets, cli.Size(b.ReceivedBytes), b.RefusedPackets)
	}
	if all := p.Attached + p.Waiting + p.Missing; len(p.Busiest) < all {
		row("", "  and %d more, with less traffic: weft pods shows all", all-len(p.Busiest))
	}
	row("", "rules of the host, such as those of a NetworkPolicy, do not see the packets between pods that "+
		"are attached directly")
}

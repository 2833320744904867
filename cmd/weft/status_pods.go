package main

import (
	"fmt"

	"weft/cmd/internal/control"
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
	row("", "rules of the host, such as those of a NetworkPolicy, do not see the packets between pods that are attached directly")
}

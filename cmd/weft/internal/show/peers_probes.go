package show

import (
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/cmd/weft/internal/top"
)

// probes returns whether a peer answers and since when, the round trip, the loss to it and from it, and the
// largest inner packet that passed.
func probes(p control.Peer, now time.Time) []any {
	words := []any{"-", "-", "-", "-"}
	if len(p.Probes) == 0 {
		return words
	}
	q := top.Worst(p.Probes)
	words[0] = q.Answers
	if q.Answers != "unknown" {
		words[0] = q.Answers + " " + cli.Span(now.Sub(q.Since))
	}
	if q.Answers == "yes" {
		if q.RTT > 0 {
			words[1] = cli.Milliseconds(q.RTT)
		}
		words[2] = cli.Losses(q.Loss, q.LossOut, q.LossIn)
	}
	words[3] = cli.Passes(q.PathMTU, q.LargeLost)
	return words
}

package show

import (
	"fmt"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

// probesHeading has the columns of probes.
const probesHeading = "ANSWERS\tRTT\tLOSS OUT/IN\tPASSES"

// probes returns whether a peer answers and since when, the round trip, the loss to it and from it, and the
// largest inner packet that passed. Of several addresses it is the worst, since pods have addresses of each
// family.
func probes(p control.Peer, now time.Time) string {
	if len(p.Probes) == 0 {
		return "-\t-\t-\t-"
	}
	worst := p.Probes[0]
	rtt, passes := int64(0), 0
	var out, in, both *float64
	large := false
	for _, q := range p.Probes {
		if badness(q) > badness(worst) {
			worst = q
		}
		rtt = max(rtt, q.RTT)
		if q.PathMTU > 0 && (passes == 0 || q.PathMTU < passes) {
			passes = q.PathMTU
		}
		large = large || q.LargeLost
		out, in, both = cli.Larger(out, q.LossOut), cli.Larger(in, q.LossIn), cli.Larger(both, q.Loss)
	}
	words := []string{worst.Answers, "-", "-", "-"}
	if worst.Answers != "unknown" {
		words[0] += " " + cli.Span(now.Sub(worst.Since))
	}
	if rtt > 0 && worst.Answers == "yes" {
		words[1] = cli.Milliseconds(rtt)
	}
	switch {
	case worst.Answers != "yes":
	case both != nil:
		words[2] = cli.Share(both) + " both"
	case out != nil || in != nil:
		words[2] = cli.Share(out) + "/" + cli.Share(in)
	}
	if passes > 0 {
		words[3] = fmt.Sprint(passes)
		if large {
			words[3] += " (larger lost)"
		}
	}
	return strings.Join(words, "\t")
}

// badness orders probes, the worst last.
func badness(p control.Probe) int {
	return map[string]int{"yes": 0, "unknown": 1, "no": 2}[p.Answers]
}

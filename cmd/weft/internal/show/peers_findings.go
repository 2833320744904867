package show

import (
	"fmt"
	"io"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/weft/internal/cli"
)

// unreachableFor is how long a message of ICMP is shown as what is so.
const unreachableFor = 5 * time.Minute

// printFindings says of each peer what is wrong with the way to it: as the probes show it, and as ICMP has
// lately said.
func printFindings(w io.Writer, st control.Status, p control.Peers, now time.Time) error {
	for _, e := range p.Peers {
		said := "" // by the probes already
		for _, q := range e.Probes {
			if f, bad := diagnose.Probe(st, e, q, diagnose.Neighbour{}); bad {
				said = f.Fact
				subject := fmt.Sprintf("%s (%v)", cli.OrDash(e.Name), q.Address)
				if err := cli.PrintFinding(w, subject, f); err != nil {
					return err
				}
			}
		}
		u := e.Unreachable
		f, bad := diagnose.Unreachable(st, e)
		if !bad || f.Fact == said || now.Sub(u.Last) > unreachableFor {
			continue
		}
		f.Fact = fmt.Sprintf("%s, of what is sent to it; the last time %s, %d in all", f.Fact,
			cli.Ago(u.Last, now), u.Count)
		if err := cli.PrintFinding(w, fmt.Sprintf("%s (%v)", cli.OrDash(e.Name), e.Address), f); err != nil {
			return err
		}
	}
	return nil
}

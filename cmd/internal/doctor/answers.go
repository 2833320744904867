package doctor

import (
	"fmt"
	"strings"
	"time"

	"weft/cmd/internal/control"
)

// mostSilent bounds how many peers that do not answer are named one by one.
const mostSilent = 10

// checkPeerAnswers goes by what the running weftd has found out by asking peers through the overlay.
func checkPeerAnswers(f *Facts) []Finding {
	if !f.Daemon.answers() {
		return one(Unknown, "weftd, which asks them, does not answer")
	}
	var out []Finding
	asked, good, silent := 0, 0, 0
	for _, p := range f.Daemon.Peers.Peers {
		for _, x := range p.Probes {
			asked++
			found := answer(x, f.Now)
			if found.Verdict == Fault {
				if silent++; silent > mostSilent {
					continue
				}
			}
			if found.Verdict == OK {
				good++
				continue
			}
			out = append(out, found.about(p.Name))
		}
	}
	if silent > mostSilent {
		out = append(out, says(Fault, "%d other peers do not answer either", silent-mostSilent).do("weft peers"))
	}
	if asked == 0 {
		return one(Unknown, "no peer was asked: there is none, or questions are turned off (Backend.Probe)")
	}
	return orOK(out, "%d of %d answer", good, asked)
}

// answer judges one address of a peer.
func answer(x control.Probe, now time.Time) Finding {
	likely := func(f Finding) Finding {
		f.Cause, f.Remedy = x.Likely, x.Look
		if f.Remedy == "" {
			f.Remedy = "weft peers"
		}
		return f
	}
	switch {
	case x.Answers == "no":
		return likely(says(Fault, "it does not answer at %s through the overlay since %s", x.Address, span(now.Sub(x.Since))))
	case x.Answers != "yes":
		return says(Unknown, "whether it answers at %s is not known yet", x.Address)
	case x.Lossy:
		var parts []string
		for _, l := range []struct {
			way  string
			part *float64
		}{{"to it", x.LossOut}, {"from it", x.LossIn}, {"there and back", x.Loss}} {
			if l.part != nil && *l.part > 0 {
				parts = append(parts, fmt.Sprintf("%.0f %% %s", 100**l.part, l.way))
			}
		}
		return likely(says(Warning, "packets are lost: %s", strings.Join(parts, ", ")))
	case x.LargeLost:
		return likely(says(Fault, "packets larger than %d bytes are sent to it and lost", x.PathMTU))
	}
	return says(OK, "it answers")
}

package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/routing"
)

// mostNamed bounds how many peers one finding names.
const mostNamed = 5

// unanswered are peers, or the addresses of one, of which the same is to be said.
type unanswered struct {
	Finding
	// of tells what was found apart from other findings with the same cause.
	of    string
	names []string
	at    []netip.Addr
	since time.Time // the earliest
}

// checkPeerAnswers goes by what the running weftd has found out by asking peers through the overlay. Peers
// with the same finding are grouped.
func checkPeerAnswers(f *Facts) findings {
	var all []*unanswered
	same := map[string]*unanswered{}
	asked, good, peers, silent := 0, 0, 0, 0
	for _, p := range f.Daemon.Peers.Peers {
		answers := len(p.Probes) == 0
		for _, x := range p.Probes {
			asked++
			found, of := f.answer(p, x)
			answers = answers || x.Answers != "no"
			if found == nil {
				good++
				continue
			}
			one := *found.last()
			key := fmt.Sprint(of, one.Verdict, one.Cause, diagnose.Finding{Causes: one.Open}.Codes())
			u := same[key]
			if u == nil {
				u = &unanswered{Finding: one, of: of, since: x.Since}
				same[key], all = u, append(all, u)
			}
			u.at = append(u.at, x.Address)
			if x.Since.Before(u.since) {
				u.since = x.Since
			}
			if !slices.Contains(u.names, p.Name) {
				u.names = append(u.names, p.Name)
			}
		}
		if len(p.Probes) > 0 {
			peers++
		}
		if !answers {
			silent++
		}
	}
	if facts := f.Network.Facts(); facts.Carrier == routing.CarrierOthers && !facts.Alone {
		return says(Unknown, "with backend %s nodes do not ask each other: weft ping NODE tells whether packets "+
			"pass", f.Network.BackendType)
	}
	if asked == 0 {
		return says(Unknown, "no peer was asked: there is none, or questions are turned off (Backend.Probe)")
	}
	var out findings
	for _, u := range all {
		out = append(out, u.finding(f.Now, silent == peers && peers > 1))
	}
	return out.orOK("%d of %d answer", good, asked)
}

// finding names the peers of u. alone says that no peer answers.
func (u *unanswered) finding(now time.Time, alone bool) Finding {
	x := u.Finding
	switch u.of {
	case silentPeer:
		x.Found = "it does not answer at " + addrsOf(u.at) + " through the overlay since " + span(now.Sub(u.since))
		if len(u.names) > 1 {
			x.Found = fmt.Sprintf("%d peers do not answer through the overlay, the first since %s", len(u.names),
				span(now.Sub(u.since)))
		}
		x.Found += ": " + x.fact
		if alone {
			x.Found = "no peer answers: " + x.Found
			x.Open = append(diagnose.Between(diagnose.Path{}, diagnose.Alone).Causes[:1:1], x.Open...)
		}
	case undecided:
		x.Found = "whether it answers at " + addrsOf(u.at[:min(len(u.at), mostNamed)]) + " is not known yet"
	}
	if x.Remedy == "" && len(x.Open) > 0 {
		x.Remedy = remedyOf(x.Open)
	}
	if len(u.names) > 1 && x.Remedy != "" && !x.Ends() {
		x.Remedy = "of " + u.names[0] + ": " + x.Remedy + "; weft peers has each one's"
	}
	x.Subject = firstOf(u.names)
	return x
}

// firstOf lists the first few of several.
func firstOf(all []string) string {
	out := strings.Join(all[:min(len(all), mostNamed)], ", ")
	if more := len(all) - mostNamed; more > 0 {
		out += fmt.Sprintf(", and %d others", more)
	}
	return out
}

// The results for a peer.
const (
	silentPeer = "silent"
	undecided  = "undecided"
)

// lost says that a part is lost that is worth a word, of enough questions: a restart of the peer loses a few.
func lost(x control.Probe, now time.Time) bool {
	const least, longEnough = 0.05, 3 * time.Minute
	return now.Sub(x.Since) >= longEnough && slices.ContainsFunc([]*float64{x.LossOut, x.LossIn, x.Loss},
		func(part *float64) bool { return part != nil && *part >= least })
}

// answer judges one address of a peer; nil for one that is well. of tells findings apart that are not about
// the same thing.
func (f *Facts) answer(p control.Peer, x control.Probe) (found findings, of string) {
	verdict, words := Warning, "packets are lost: "
	if x.Answers == "yes" && !x.Lossy && !x.LargeLost && lost(x, f.Now) {
		// weftd does not call that lossy, it may be over, and TCP is much slower by it
		verdict, words, x.Lossy = Note, "some of the last packets were lost: ", true
	}
	why, _ := diagnose.Probe(f.Daemon.Status, p, x, f.Links.Neighbours[diagnose.UnderlayOf(p)])
	switch {
	case x.Answers == "no":
		return says(Fault, "it does not answer").follows(why), silentPeer
	case x.Answers != "yes":
		return says(Unknown, "whether it answers is not known yet"), undecided
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
		text := words + strings.Join(parts, ", ")
		return says(verdict, "%s", text).follows(why), text
	case x.LargeLost:
		st := f.Daemon.Status
		text := fmt.Sprintf("packets of %d bytes reach it, and those of %d are lost", x.PathMTU, st.Backend.MTU)
		return says(Fault, "%s", text).follows(why).
			do("until that is mended: %s", f.smaller(x.PathMTU+max(0, st.Underlay.MTU-st.Backend.MTU))), text
	}
	return nil, ""
}

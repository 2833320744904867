package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/lease"
	"weft/routing"
)

func checkPeerWays(f *Facts) findings {
	var out findings
	var none []lease.Record
	good := 0
	for _, p := range f.peers() {
		way, asked := f.Links.To[p.PublicIP]
		at, next, near := p.PublicIP, f.Links.nextHop(p.PublicIP), f.Links.Neighbours[p.PublicIP]
		link, silent := f.Links.Silent[next]
		whose, host := "its address "+at.String(), p.Called()
		if next != at {
			whose, host = fmt.Sprintf("the gateway %s on the way to its address %s", next, at),
				"gateway "+next.String()
		}
		switch {
		case !asked:
			continue
		case near.Misled(), near.Several():
			link, next, host = near.Link, at, p.Called()
			out = out.says(Fault, "packets to its address %s go to another host, or to one of several", at)
		case silent && len(near.Answers) > 0: // an old entry: it answers now
			good++
			continue
		case way.Err != nil:
			none = append(none, p)
			continue
		case silent:
			out = out.says(Fault, "%s does not answer on %s (neighbour FAILED)", whose, link)
		default:
			good++
			continue
		}
		said := diagnose.Said{Kind: diagnose.KindHost, Text: "nobody on the link has the address"}
		out = out.about(p.Called()).
			follows(diagnose.Of(diagnose.Path{Peer: host, Link: link, Under: next, Neighbour: near},
				diagnose.Fact{Layer: diagnose.Underlay, State: diagnose.Unsent, To: next, Said: &said}))
	}
	if len(none) == 0 {
		return out.orOK("there is one to %d peers", good)
	}
	at, names, has := none[0].PublicIP, []string{}, ""
	for _, p := range none {
		names = append(names, p.Called())
	}
	if l, ok := f.Links.named(f.Links.Underlay.Name); ok {
		has = fmt.Sprintf("; %s has %v", l.Name, l.Addrs)
	}
	out = out.says(Fault, "there is no way to %s: %v%s", at, f.Links.To[at].Err, has).about(firstOf(names)).
		do("ip addr show %s; ip route get %s", f.Links.Underlay.Name, at)
	if r, ok := f.longest(at, func(r Route) bool { return r.Blocks }); ok {
		out.because("the route %s blocks it", r.Dst).do("ip route del %s", r.Dst)
	}
	return out
}

// unanswered are peers, or addresses of them, of which the same is to be said.
type unanswered struct {
	Finding
	names []string
	at    []netip.Addr
	since time.Time // the earliest; zero for peers that answer, and that had begun to do so then
}

// refusal says that a cause follows from an ICMP message of the peer's host.
func refusal(c diagnose.Cause) bool { return c.Code == "peer-rejects" || c.Code == "no-probes" }

// checkPeerAnswers goes by what the running weftd has found out by asking peers through the overlay.
func checkPeerAnswers(f *Facts) findings {
	if facts := f.Network.Facts(); facts.Carrier == routing.CarrierOthers && !facts.Alone {
		return says(Unknown, "with backend %s nodes do not ask each other: weft ping NODE tells whether packets "+
			"pass", f.Network.BackendType)
	}
	var all []*unanswered
	same := map[string]*unanswered{}
	asked, good, peers, silent := 0, 0, 0, 0
	for _, p := range f.Daemon.Peers.Peers {
		if len(p.Probes) > 0 {
			peers++
		}
		notSilent := func(x control.Probe) bool { return x.Answers != "no" }
		if len(p.Probes) > 0 && !slices.ContainsFunc(p.Probes, notSilent) {
			silent++
		}
		for _, x := range p.Probes {
			asked++
			found := f.answer(p, x)
			if found == nil {
				good++
				continue
			}
			one := *found.last()
			what := one.Found
			if x.Answers == "no" {
				what = x.Answers // the fact may have the peer's address
			}
			key := fmt.Sprint(one.Verdict, what, one.Cause, diagnose.Finding{Causes: one.Open}.Codes())
			u := same[key]
			if u == nil {
				u = &unanswered{Finding: one}
				same[key], all = u, append(all, u)
			}
			u.at = append(u.at, x.Address)
			if x.Answers != "yes" && (u.since.IsZero() || x.Since.Before(u.since)) {
				u.since = x.Since
			}
			if !slices.Contains(u.names, p.Name) {
				u.names = append(u.names, p.Name)
			}
		}
	}
	if asked == 0 {
		return says(Unknown, "no peer was asked: there is none, or questions are turned off (Backend.Probe)")
	}
	var out findings
	for _, u := range all {
		if u.Verdict == Fault && silent == peers && peers > 1 {
			u.Found = "no peer answers: " + u.Found
			// A refusal passed this node's link and rules.
			if !u.Observed && !slices.ContainsFunc(u.Open, refusal) {
				u.Open = append(diagnose.Between(diagnose.Path{}, diagnose.Alone).Causes[:1:1], u.Open...)
			}
		}
		last := ""
		if !u.since.IsZero() {
			last = "for " + span(f.Now.Sub(u.since)) + ", "
		}
		u.Found += fmt.Sprintf(" (%sat %s)", last, addrsOf(u.at[:min(len(u.at), mostNamed)]))
		if len(u.names) > 1 && len(u.Open) > 0 {
			u.Found += fmt.Sprintf("; these %d are alike, and what is to be run is for the first", len(u.names))
		}
		u.Subject = firstOf(u.names)
		out = append(out, u.Finding)
	}
	return out.orOK("%d of %d answer", good, asked)
}

// lost says that a part is lost that is worth a word, of enough questions: a restart of the peer loses a few.
func lost(x control.Probe, now time.Time) bool {
	const least, longEnough = 0.05, 3 * time.Minute
	return now.Sub(x.Since) >= longEnough && slices.ContainsFunc([]*float64{x.LossOut, x.LossIn, x.Loss},
		func(part *float64) bool { return part != nil && *part >= least })
}

// answer judges one address of a peer; nil for one that is well.
func (f *Facts) answer(p control.Peer, x control.Probe) findings {
	verdict := Warning
	if x.Answers == "yes" && !x.Lossy && !x.LargeLost && lost(x, f.Now) {
		// weftd does not call that lossy, it may be over, and TCP is much slower by it
		verdict, x.Lossy = Note, true
	}
	why, _ := diagnose.Probe(f.Daemon.Status, p, x, f.Links.Neighbours[diagnose.UnderlayOf(p)])
	switch {
	case x.Answers == "no":
		return says(Fault, "no answer through the overlay: %s", why.Fact).follows(why)
	case x.Answers != "yes":
		return says(Unknown, "whether it answers is not known yet")
	case x.Lossy:
		var parts []string
		for i, part := range []*float64{x.LossOut, x.LossIn, x.Loss} {
			if part != nil && *part > 0 {
				parts = append(parts, fmt.Sprintf("%.0f %% %s", 100**part,
					[]string{"to it", "from it", "there and back"}[i]))
			}
		}
		return says(verdict, "of the last packets are lost: %s", strings.Join(parts, ", ")).follows(why)
	case x.LargeLost:
		st := f.Daemon.Status
		return says(Fault, "packets of %d bytes reach it, and those of %d are lost", x.PathMTU, st.Backend.MTU).
			follows(why).
			do("until that is mended: %s", f.smaller(x.PathMTU+max(0, st.Underlay.MTU-st.Backend.MTU)))
	}
	return nil
}

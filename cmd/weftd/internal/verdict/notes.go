package verdict

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing/probe"
	"weft/tunnel/port"
)

// Notes lists what an operator should know although pods have a network.
func Notes(s *control.Snapshot) (out []control.Verdict) {
	say := func(c control.Code, texts ...string) {
		for _, t := range texts {
			out = append(out, c.Say(t))
		}
	}
	say(control.WithoutPart, s.Missing...)
	if c := s.Custody; c != nil && c.Fault != "" {
		code := control.RestartLosesPods
		if c.Items == 0 {
			code = control.RestartLosesPorts
		}
		say(code, c.Fault)
	}
	say(control.CertificateFails, s.Certificates...)
	if s.Waiting != "" {
		return out
	}
	if s.Source.Assigns {
		say(control.LeaseNote, s.Lease.Notes...)
		if why, ok := store(s); ok && outlasts(s) {
			out = append(out, why)
		}
	}
	if err := s.Lease.CacheErr; err != nil {
		out = append(out, control.CacheNotSaved.Say(cmp.Or(s.Source.Name, "store"), err))
	}
	if c := &s.Config; c.LastGood && len(c.Faults) > 0 {
		out = append(out, control.ConfigLastGood.Say(s.Source.Where, strings.Join(c.Faults, "\n")))
	}
	if why, _ := NoPeer(s); why.Code != "" {
		out = append(out, why)
	}
	if s.Former != "" {
		say(control.FormerSubnet, s.Former)
	}
	if why := RangeUse(s); why.Code != "" {
		out = append(out, why)
	}
	say(control.ProbesFailing, s.ProbeFaults...)
	if s.Alone {
		out = append(out, unanswered(s.Probes)...)
	}
	if s.Plane != nil {
		out = append(out, forgers(s)...)
		out = append(out, offloads(s)...)
	}
	return out
}

// rangeWarning is the part of the subnets, in percent, from which on the operator is told that they come to
// an end.
const rangeWarning = 80

// RangeUse says that most or all subnets of the network are taken; it is zero if enough are left, or if the
// cluster gives them out. It costs work for each record.
func RangeUse(s *control.Snapshot) control.Verdict {
	set := &s.Set
	if s.Source.Assigns || len(set.Config.Networks()) == 0 {
		return control.Verdict{}
	}
	taken := make([]lease.Subnets, 0, len(set.Peers)+1)
	if set.Own.Subnets != (lease.Subnets{}) {
		taken = append(taken, set.Own.Subnets)
	}
	for i := range set.Peers {
		taken = append(taken, set.Peers[i].Subnets)
	}
	var out []string
	for _, u := range set.Config.Use(taken) {
		if u.Percent() >= rangeWarning {
			out = append(out, fmt.Sprintf("%d of %d subnets of %s are taken", u.Taken, u.All, u.Network))
		}
	}
	if len(out) == 0 {
		return control.Verdict{}
	}
	return control.NetworkNearlyFull.Say(strings.Join(out, ", "))
}

// unanswered says that no peer answers, with what was observed; nothing if one does, or may.
func unanswered(states []probe.State) []control.Verdict {
	peers := map[string]bool{}
	for _, s := range states {
		if s.Answers != probe.No {
			return nil
		}
		peers[s.Peer] = true
	}
	if len(peers) == 0 {
		return nil
	}
	first := &states[0]
	return []control.Verdict{control.NoPeerAnswers.Say(countOf(len(peers), "was asked", "were asked"),
		first.Fact)}
}

// forgerRecent is how long an address that was forged on this host is named after its last packet, and
// forgerMost how many are.
const (
	forgerRecent = 10 * time.Minute
	forgerMost   = 3
)

// forgers name inner sources that are other nodes' and that packets of this host had lately.
func forgers(s *control.Snapshot) (out []control.Verdict) {
	for _, f := range s.Plane.Forgers {
		if s.At.Sub(f.LastRx) < forgerRecent && len(out) < forgerMost {
			out = append(out, control.ForgedSource.Say(f.Addr, f.Packets))
		}
	}
	return out
}

// offloads name those that break packets on the underlay's link.
func offloads(s *control.Snapshot) (out []control.Verdict) {
	for _, o := range s.Plane.Stats.Offloads {
		if o.State == port.OffloadBroken {
			out = append(out, control.OffloadBreaksLinks.Say(o.Offload.String(), s.Backend.Underlay.Name))
		}
	}
	return out
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

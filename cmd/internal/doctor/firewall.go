package doctor

import (
	"slices"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/tunnel"
)

// silent says that a peer does not answer weftd's probes.
func (f *Facts) silent() bool { return slices.ContainsFunc(f.Daemon.Peers.Peers, silentAt) }

// silentAt says that a peer does not answer weftd's probes at one address at least.
func silentAt(p control.Peer) bool {
	return slices.ContainsFunc(p.Probes, func(x control.Probe) bool { return x.Answers == "no" })
}

func checkOutput(f *Facts) findings { return f.atPort("output") }

func checkInput(f *Facts) findings {
	found := f.atPort("input")
	if n := f.Daemon.Status.Rules.Pods; n > 0 && f.silent() {
		found = found.says(Warning, "weft's rules dropped %d datagrams at the overlay's port, which came from "+
			"pods or by a link that leads to no peer", n)
		found = found.follows(diagnose.Between(diagnose.Path{Link: f.Links.Underlay.Name,
			UDPPort: f.Network.Facts().Port}, diagnose.OffPort))
	}
	return found
}

// atPort suspects the firewalls at a hook of the overlay's port.
func (f *Facts) atPort(hook string) findings {
	switch facts := f.Network.Facts(); {
	case f.Network.BackendType == "":
		return says(OK, "the backend is not known")
	case facts.Port == 0 && facts.Guard.Protocol == 0:
		return says(OK, "backend %s has no port", f.Network.BackendType)
	case f.Daemon.Answers() && f.Daemon.Status.Backend.Path == tunnel.PathRaw.String():
		return says(OK, "path raw passes beside it")
	}
	return f.suspected(hook, "")
}

func checkForward(f *Facts) findings {
	link := f.Links.Underlay.Name
	for _, l := range f.overlayLinks() {
		if isFlannels(l.Name) {
			link = l.Name
		}
	}
	return f.suspected("forward", link)
}

// suspected lists the firewalls at a hook that may drop: a warning while a peer is silent, and else a note.
func (f *Facts) suspected(hook, link string) findings {
	v := Note
	if f.silent() {
		v = Warning
	}
	facts := f.Network.Facts()
	var out findings
	for _, s := range f.Firewall.Suspects {
		// There weftd's rules accept, but for nftables, where each table has to.
		ours := f.Settings.Rules.ForwardRules && !f.Network.EnableNFTables && s.Chain == "FORWARD" &&
			s.Owner == "" && !s.Sure && !s.Ahead
		some := s.Some > 0 || s.Dropped > 0 && hook != "forward" // of which the overlay's packets need be none
		if s.Hook != hook || hook == "forward" && ours || some && !f.silent() {
			continue
		}
		port := facts.Port
		if s.IPv6 && facts.Port6 != 0 {
			port = facts.Port6
		}
		switch {
		case s.Sure:
			out = out.says(Warning, "%s, and no rule before it accepts", s)
		case s.Dropped > 0, s.Some > 0:
			out = out.says(v, "%s", s)
		default:
			out = out.says(v, "%s, unless a rule accepts it first: those were not read", s)
		}
		out.about(s.Table+" "+s.Chain).do("%s", s.Allow(port, facts.Guard.Protocol, link))
	}
	if f.Firewall.Err != nil {
		return out.or(Unknown, "%v", f.Firewall.Err)
	}
	return out.orOK("no firewall is known that drops what nobody accepts")
}

package doctor

// checkEncryption looks at whether the peers of backend wireguard have a session where packets are for them,
// and with Backend.Encrypt at whether the rules are there that nothing else passes.
func checkEncryption(f *Facts) []Finding {
	var out []Finding
	if s := f.Daemon.Status; s.Backend.Encrypt != "" && !s.Rules.InPlace {
		out = append(out, says(Fault, "packets of the overlay could come or go in plain, which Encrypt %q forbids",
			s.Backend.Encrypt).
			because("weft's rules are not in this host's firewall: %s",
				s.Rules.Error).do("make nftables or iptables work for weftd; weft status shows when the rules are in "+
			"place"))
	}
	n := 0
	for _, p := range f.Daemon.Peers.Peers {
		for _, x := range p.Encryption {
			n++
			if x.Likely != "" {
				out = append(out, says(Fault, "%s is not heard by %s", p.Name, x.Device).because("%s",
					x.Likely).do("%s", x.Look))
			}
		}
	}
	if n == 0 && len(out) == 0 {
		return one(OK, "nothing is encrypted: the backend does not, or there is no peer")
	}
	return orOK(out, "%d peers have sessions where packets are for them", n)
}

package doctor

// checkEncryption looks at whether the peers of backend wireguard have a session where packets are for them.
func checkEncryption(f *Facts) []Finding {
	var out []Finding
	n := 0
	for _, p := range f.Daemon.Peers.Peers {
		for _, x := range p.Encryption {
			n++
			if x.Likely != "" {
				out = append(out, says(Fault, "%s is not heard by %s", p.Name, x.Device).because("%s", x.Likely).do("%s", x.Look))
			}
		}
	}
	if n == 0 {
		return one(OK, "nothing is encrypted: the backend is not wireguard, or there is no peer")
	}
	return orOK(out, "%d peers have sessions where packets are for them", n)
}

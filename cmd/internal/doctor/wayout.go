package doctor

// checkWayOut looks at where the TUN's network namespace leads, if that is not the host's.
func checkWayOut(f *Facts) []Finding {
	n := f.Daemon.Status.Namespace
	switch {
	case !f.Daemon.answers() || n == nil:
		return one(OK, "packets to neither pods nor peers take this host's routes")
	case n.Out == nil:
		return one(Unknown, "the network namespace of the TUN was not looked into")
	case n.Out.IPv4 == "" && n.Out.IPv6 == "":
		return []Finding{says(Note, "pods reach each other, and nothing else").because("the network namespace of " +
			"the TUN has no default route").
			do("have slirp4netns or pasta in that namespace if they are to reach more (docs/rootless.md); an " +
				"overlay for itself needs neither")}
	case !n.Out.Masquerade:
		return []Finding{says(Note, "what pods send to others than pods gets no answer where slirp4netns or "+
			"pasta carry it").because("weftd runs without --ip-masq, and they know the namespace's own address only").
			do("start weftd with --ip-masq")}
	}
	return one(OK, "packets to neither pods nor peers leave the TUN's network namespace by its default route")
}

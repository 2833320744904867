package doctor

// checkPods looks at whether the pods that are attached directly carry anything.
func checkPods(f *Facts) []Finding {
	p := f.Daemon.Status.Pods
	if !f.Daemon.answers() || p == nil {
		return one(OK, "no pod is attached directly")
	}
	var out []Finding
	if p.Missing > 0 {
		out = append(out, says(Fault, "%d of %d directly attached pods have no port, and reach nobody", p.Missing,
			p.Attached+p.Waiting+p.Missing).
			because("weftd was restarted, and nobody had kept the descriptors of their interfaces").do(
			"weft pods says how each is attached again; docs/operations.md has how they are kept"))
	}
	if p.Waiting > 0 {
		out = append(out, says(Warning, "%d directly attached pods wait for their port, and reach nobody until "+
			"they have it", p.Waiting).
			because("there is no data plane now, or the kernel refused the port; weftd tries again").do(
			"weft pods has the reason of each; weft status, that of the data plane"))
	}
	if other := p.Problems - p.Missing - p.Waiting; other > 0 {
		out = append(out, says(Warning, "%d directly attached pods have a port, and a problem",
			other).do("weft pods names it, with what to do"))
	}
	if out == nil {
		return one(OK, "%d directly attached pods have their ports", p.Attached)
	}
	return out
}

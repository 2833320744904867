package doctor

import "time"

// checkCustody looks at who keeps pods' descriptors for the next weftd.
func checkCustody(f *Facts) []Finding {
	d, h := f.Daemon, f.Daemon.Holder
	if !d.answers() {
		switch {
		case d.HolderErr != nil:
			return one(Unknown, "the holder of pods' descriptors could not be asked: %v", d.HolderErr)
		case h.Items > 0:
			return []Finding{says(Warning, "weftd is away, and a holder (pid %d) keeps %d of its descriptors for "+
				"%s more", h.PID, h.Descriptors, h.LeftFor().Round(time.Second)).
				because("weftd ended %s ago; pods that are attached directly reach nobody until it runs again, and have "+
					"to be attached again if it does not run by then", h.AwayFor().Round(time.Second)).
				do("systemctl start weftd; weft cleanup, if it is not to run again")}
		}
		return one(OK, "no holder waits for a weftd")
	}
	k := d.Status.Custody
	switch {
	case k == nil:
		return one(OK, "no pod is attached directly, so there is nothing to keep")
	case k.Fault != "" && k.Items == 0:
		return []Finding{says(Warning, "packets are lost while weftd is restarted").because("%s",
			k.Fault).do("weft status; docs/operations.md")}
	case k.Fault != "":
		return []Finding{says(Warning, "a restart of weftd would cut off pods that are attached directly").because(
			"%s", k.Fault).do("weft status; docs/operations.md")}
	}
	if k.Ports > 0 {
		return one(OK, "%d descriptors of %d pods and %d of weftd's own ports are kept by the %s", k.Descriptors,
			k.Items, k.PortDescriptors, k.By)
	}
	return one(OK, "%d descriptors of %d pods are kept by the %s", k.Descriptors, k.Items, k.By)
}

package daemon

import (
	"weft/cmd/internal/events"
	"weft/lease"
	"weft/lease/subnetenv"
)

// writeSubnetFile brings the subnet file up to date, once the lease is known and
// the device is there, and the lease record with it.
func (d *Daemon) writeSubnetFile(g *overlay) {
	set, before := g.state()
	status := g.backend.Status()
	if set.Own.Subnets == (lease.Subnets{}) || !usable(status) {
		return
	}
	g.member.SetLocal(d.local(g))
	d.putSubnetFile(g, subnetFile(g.network.config.NetworkConfig, set.Own.Subnets, status.MTU,
		d.cfg.Rules.IPMasq), before)
}

// putSubnetFile writes f, if the file is not that already; before says why the last try failed, "" if it did
// not.
func (d *Daemon) putSubnetFile(g *overlay, f subnetenv.File, before string) {
	why := ""
	held, err := subnetenv.Holds(d.cfg.SubnetFile, f)
	if err != nil && before == "" && f.Equal(g.wanted()) {
		return // it was as it should be, and nobody can look now
	}
	if !held {
		if err := subnetenv.Write(d.cfg.SubnetFile, f); err != nil {
			why = err.Error()
		}
		switch again := f.Equal(g.wanted()); {
		case why != "" && why != before:
			d.log.Error("subnet file not written: container runtimes cannot use the subnet; it is tried again",
				"event", events.SubnetFile, "reason", why)
		case why == "" && again && before == "":
			d.log.Warn("the subnet file was gone or had been changed by somebody else: put back", "event",
				events.SubnetFile, "file", d.cfg.SubnetFile)
		case why == "":
			d.log.Info("subnet file written", "event", events.SubnetFile, "file", d.cfg.SubnetFile, "subnet",
				lease.Subnets{V4: f.Subnet, V6: f.IPv6Subnet}.String(), "mtu", f.MTU)
		}
	}
	g.mu.Lock()
	g.file, g.fileWhy = f, why
	g.mu.Unlock()
}

// wanted returns what the subnet file has to contain; zero as long as that is not known.
func (g *overlay) wanted() subnetenv.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.file
}

// keepSubnetFile makes apply write the subnet file again if that failed, or if the file is gone or has other
// contents, since no other writer of the file tells us.
func (d *Daemon) keepSubnetFile() {
	g, _ := d.current()
	if g == nil {
		return
	}
	f := g.wanted()
	if _, why := g.state(); why == "" {
		if held, err := subnetenv.Holds(d.cfg.SubnetFile, f); held || err != nil || f.Equal(subnetenv.File{}) {
			return
		}
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

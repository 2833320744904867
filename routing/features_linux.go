package routing

import (
	"fmt"

	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// readFeatures reads the features of the underlay's devices after a change of a link, and reports whether it
// did. While the underlay is lost what was seen last stays.
func (c *Node) readFeatures(ch kernel.Change) bool {
	if c.plane == nil || c.under.Lost != "" {
		return false
	}
	if l := c.devices.List; ch&kernel.ChangedObjects == 0 && len(l) > 0 && l[0].Index == c.under.Now.Index {
		return false // each reading takes much memory, and peers change often
	}
	d := underlay.ReadDevices(c.out, c.under.Now.Index)
	if d.Unknown != "" && c.devices.Unknown == "" {
		c.log.Info("features of the underlay's device are not known", "device", c.under.Now.Name,
			"cause", d.Unknown)
	}
	if !d.Equal(c.devices) {
		c.plane.Engine().RecheckRuns()
	}
	c.devices = d
	return true
}

// chooseOutlet has superpackets leave as the features that were read last suggest.
func (c *Node) chooseOutlet() {
	if c.plane != nil && c.under.Lost == "" {
		c.plane.SetOutlet(c.devices.Outlet)
	}
}

// joiner is the command that has a device of the underlay join no datagrams of UDP which are inside other
// packets, for a type that cannot take them apart; "" if none does.
func (c *Node) joiner() string {
	if c.plane == nil || !c.about.joinsHurt {
		return ""
	}
	for _, d := range c.devices.List {
		for _, f := range []string{underlay.UDPGROForwarding, underlay.GROList} {
			if d.Features.Has(f) && d.Features.Has(underlay.GRO) {
				return fmt.Sprintf("ethtool -K %s %v off", d.Name, f)
			}
		}
	}
	return ""
}

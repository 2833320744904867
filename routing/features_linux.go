package routing

import (
	"fmt"
	"sync/atomic"

	"weft/routing/underlay"
)

// features are what the underlay's devices do for datagrams, of a type that the data plane serves.
type features struct {
	now atomic.Pointer[underlay.Devices]
}

// devices are those that were last seen.
func (f *features) devices() underlay.Devices {
	if d := f.now.Load(); d != nil {
		return *d
	}
	return underlay.Devices{}
}

// readFeatures reads the features of the underlay's devices. While the underlay is lost what was seen last
// stays.
func (c *Node) readFeatures() {
	if c.plane == nil || c.under.Lost != "" {
		return
	}
	d := underlay.ReadDevices(c.out, c.under.Now.Index)
	if d.Unknown != "" && c.features.devices().Unknown == "" {
		c.log.Info("features of the underlay's device are not known", "device", c.under.Now.Name,
			"cause", d.Unknown)
	}
	if !d.Equal(c.features.devices()) {
		c.plane.Engine().DoubtRuns()
	}
	c.features.now.Store(&d)
}

// chooseOutlet has superpackets leave as the features that were read last suggest.
func (c *Node) chooseOutlet() {
	if c.plane != nil && c.under.Lost == "" {
		c.plane.SetOutlet(c.features.devices().Outlet)
	}
}

// joiner is the command that has a device of the underlay join no datagrams of UDP which are inside other
// packets, for a type that cannot take them apart; "" if none does.
func (c *Node) joiner() string {
	if c.plane == nil || !c.about.joinsHurt {
		return ""
	}
	for _, d := range c.features.devices().List {
		for _, f := range []underlay.Feature{underlay.UDPGROForwarding, underlay.GROList} {
			if d.Features.Has(f) && d.Features.Has(underlay.GRO) {
				return fmt.Sprintf("ethtool -K %s %v off", d.Name, f)
			}
		}
	}
	return ""
}

// below are the numbers of the devices that were last seen.
func (f *features) below() map[int]bool {
	numbers := map[int]bool{}
	for _, d := range f.devices().List {
		numbers[d.Index] = true
	}
	return numbers
}

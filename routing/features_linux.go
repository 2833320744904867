package routing

import (
	"slices"
	"sync/atomic"

	"weft/routing/internal/kernel"
	"weft/routing/underlay"
)

// features are what the underlay's devices do for datagrams, of a type that the data plane serves.
type features struct {
	monitor *kernel.FeatureMonitor // nil where the kernel has none
	now     atomic.Pointer[underlay.Devices]
}

// devices are those that were last seen.
func (f *features) devices() underlay.Devices {
	if d := f.now.Load(); d != nil {
		return *d
	}
	return underlay.Devices{}
}

// chooseOutlets reads the features of the underlay's devices, and has superpackets leave by them. While the underlay is lost
// what was seen last stays.
func (c *controller) chooseOutlets() {
	if c.plane == nil || c.under.Lost != "" {
		return
	}
	d := underlay.ReadDevices(c.out, c.under.Now.Index)
	if d.Unknown != "" && c.features.devices().Unknown == "" {
		c.log.Info("features of the underlay's device are not known", "device", c.under.Now.Name, "cause", d.Unknown)
	}
	c.features.now.Store(&d)
	c.plane.SetOutlets(d.Outlets)
}

// followFeatures asks to look again whenever features of the underlay's devices change, until the monitor is closed. Without it, changes
// are seen when all is compared anyway.
func (c *controller) followFeatures() {
	err := c.features.monitor.Follow(func(link int) {
		if link == 0 || slices.ContainsFunc(c.features.devices().List, func(d underlay.Device) bool { return d.Index == link }) {
			c.nudge(kernel.ChangedObjects)
		}
	})
	if err != nil {
		c.log.Warn("changes of the underlay's features are noticed late", "cause", err)
	}
}

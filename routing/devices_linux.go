package routing

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weft/routing/event"
	"weft/routing/internal/kernel"
)

// syncKernel makes devices, addresses, entries and routes what the decision wants. The first time it also
// takes over what flannel left; after that every change undoes what somebody else did.
func (c *Node) syncKernel(r *round, m mtus) {
	if c.want.device != "" {
		r.st.Devices = []string{c.want.device}
	}
	want := c.want.Without(c.absent)
	if c.plane != nil {
		tun, err := c.ensureTUN(r, m)
		if err != nil {
			r.try(err)
			return
		}
		pods, err := c.podRoutes(c.plane.Device())
		r.try(err)
		want = tun.With(want).With(pods)
	}
	before := len(r.faults)
	done := c.bring(r, want)
	err := errors.Join(r.faults[before:]...)
	for _, a := range r.st.Adopted {
		c.log.Info("taken over", "event", event.TakenOver, "object", a)
	}
	switch {
	case done > 0 && c.settled && want.Equal(c.inPlace):
		r.st.Repaired = uint64(done)
		c.logger().Warn("repaired what was changed", "event", event.RoutesRepaired, "changes", done)
	case err == nil:
		c.inPlace = want
	}
	c.settled = c.settled || err == nil
}

// ensureTUN makes sure that the data plane holds its TUN, and says what is wanted on it.
func (c *Node) ensureTUN(r *round, m mtus) (kernel.State, error) {
	if err := c.plane.EnsureTUN(c.cfg.Network.Networks(), c.cfg.Former); err != nil {
		return kernel.State{}, err
	}
	name, own := c.plane.Device(), c.set.Own.Subnets
	if m.inner < minMTU6 {
		own.V6 = netip.Prefix{} // the kernel would refuse it on such a link
	}
	// Faults here are mostly a read-only /proc/sys. What really fails for that shows below.
	settings := []error{c.k.SetIPv4(name), c.k.SetIPv6(name, own.V6.IsValid())}
	if c.about.asksHops {
		settings = append(settings, c.k.Loosen(name))
	}
	for _, err := range settings {
		if err != nil {
			notes := kernel.SettingNotes(name, err)
			r.note(notes...)
			c.warnOnce(err, "meaning", notes)
		}
	}
	return tunState(name, m.inner, own, c.cfg.Network.NetworkConfig), nil
}

// ownDevices names the devices that a state has.
func ownDevices(s kernel.State) (names []string) {
	for _, d := range s.Devices {
		names = append(names, d.Name)
	}
	return names
}

// vteps names the kernel's vxlan devices that a state has.
func vteps(s kernel.State) (names []string) {
	for _, d := range s.Devices {
		if d.Kind == kernel.KindVXLAN {
			names = append(names, d.Name)
		}
	}
	return names
}

// plan deletes no routes by devices that we failed to create: they may be back, and without these routes
// packets would leave by another way, in plain.
func (c *Node) plan(have, want kernel.State) kernel.Changes {
	p := kernel.Plan(have, want, c.ownership(ownDevices(want)))
	p.DelRoutes = slices.DeleteFunc(p.DelRoutes, func(r kernel.Route) bool {
		return slices.Contains(c.absent, r.Link)
	})
	return p
}

// bring makes the kernel as want says. If a device cannot be made, only what is on it is left out. done is
// how many changes were made.
func (c *Node) bring(r *round, want kernel.State) (done int) {
	at := c.place(ownDevices(want), want)
	have, err := c.k.State(at)
	if err != nil {
		r.try(err)
		return 0
	}
	plan := c.plan(have, want)
	c.tellDevices(plan.Devices)
	result, err := kernel.Apply(c.k, plan)
	done = result.Done
	if errors.Is(err, unix.EINVAL) && len(plan.DelRoutes) > 0 {
		// The obstacle may have been ours, and is gone now.
		if have, again := c.k.State(at); again == nil {
			result, err = kernel.Apply(c.k, c.plan(have, want))
			done += result.Done
		}
	}
	r.try(err)
	for _, err := range result.Settings {
		c.warnOnce(err)
	}
	r.st.Adopted = append(r.st.Adopted, plan.Adopted...)
	r.st.Pending = plan.Len() + len(plan.Conflicts) - done
	missing := slices.Concat(result.Missing, c.absent)
	for _, s := range plan.Strangers {
		missing = append(missing, s.Name)
	}
	c.noteMade(plan.Devices, missing)
	if c.plane != nil {
		return done
	}
	devices := ownDevices(want.Without(missing))
	r.note(c.checksums(vteps(want.Without(missing))))
	if r.st.Up = len(missing) == 0; r.st.Up && len(devices) > 0 {
		r.st.Devices = devices
	}
	return done
}

// tellDevices logs which devices are to be made anew.
func (c *Node) tellDevices(vs []kernel.DeviceChange) {
	for _, v := range vs {
		switch {
		case v.Recreate != "":
			c.log.Info("making the device anew", "event", event.DeviceRepaired, "device", v.Want.Name, "because",
				v.Recreate)
		case v.Create && c.made[v.Want.Name] != 0:
			c.log.Warn("device is gone, making it again", "event", event.DeviceRepaired, "device", v.Want.Name)
		}
	}
}

// noteMade notes the numbers of the devices that are there for us.
func (c *Node) noteMade(vs []kernel.DeviceChange, missing []string) {
	for _, v := range vs {
		if slices.Contains(missing, v.Want.Name) {
			continue
		}
		if d, err := c.k.Device(v.Want.Name); err == nil {
			c.made[v.Want.Name] = d.Index
		}
	}
}

// place says what of the kernel is to be listed. In a sandbox, listing neighbours may be forbidden, so they
// are listed only if some are wanted.
func (c *Node) place(devices []string, want kernel.State) kernel.Place {
	forwards := len(vteps(want)) > 0
	p := kernel.Place{Devices: devices, Neighs: len(want.Neighs) > 0 || forwards, Fdbs: forwards}
	if c.plane == nil {
		p.Underlay = c.under.Now.Name
	}
	return p
}

// ownership says which objects we may change. The data plane has one route for all peers, and a route of
// flannel's in its place is always taken over. Routes to single peers that have flannel's shape are taken
// over once, at the start: those that appear later are somebody's own.
func (c *Node) ownership(devices []string) kernel.Ownership {
	o := kernel.Ownership{Links: devices, Made: c.made, Networks: c.networks()}
	if c.plane != nil {
		o.Adopts = func(r kernel.Route) bool {
			return r.Protocol == kernel.ProtoBoot && o.OwnsLink(r.Link) && !r.Gateway.IsValid() &&
				slices.Contains(o.Networks, r.Dst)
		}
		return o
	}
	if c.settled {
		return o
	}
	lengths := map[bool]int{false: c.cfg.Network.SubnetLen, true: c.cfg.Network.IPv6SubnetLen}
	o.SweepAdopted = true
	o.Adopts = func(r kernel.Route) bool {
		if r.Protocol == kernel.ProtoBoot && c.about.tunnels && o.OwnsLink(r.Link) &&
			slices.Contains(o.Networks, r.Dst) {
			return true // flannel has one route for all peers of a WireGuard device
		}
		if r.Protocol != kernel.ProtoBoot || !r.Gateway.IsValid() || !o.Within(r.Dst) ||
			r.Dst.Bits() != lengths[r.Dst.Addr().Is6()] {
			return false
		}
		if o.OwnsLink(r.Link) {
			return r.OnLink && (r.Gateway == r.Dst.Addr() || c.about.viaPublic)
		}
		return r.Link == c.under.Now.Name && !r.OnLink
	}
	return o
}

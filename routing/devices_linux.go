package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
)

// syncKernel brings devices, addresses, entries and routes to what the decision wants. The first time it also takes
// over what flannel left; after that every change is somebody else's undone.
func (c *controller) syncKernel(r *round, m mtus) {
	r.st.Device = c.want.device
	want := c.want.State
	if c.plane != nil {
		tun, err := c.ensureTUN(r, m)
		if err != nil {
			r.try(err)
			return
		}
		want = tun.With(want)
	}
	before := len(r.faults)
	done := c.bring(r, want)
	err := errors.Join(r.faults[before:]...)
	for _, a := range r.st.Adopted {
		c.log.Info("taken over", "object", a)
	}
	switch {
	case done > 0 && c.settled && want.Equal(c.inPlace):
		r.st.Repaired = uint64(done)
		c.logger().Warn("repaired what was changed", "changes", done)
	case err == nil:
		c.inPlace = want
	}
	c.settled = c.settled || err == nil
}

// ensureTUN makes sure that the data plane holds its TUN, and says what is wanted on it.
func (c *controller) ensureTUN(r *round, m mtus) (kernel.State, error) {
	if err := c.plane.EnsureTUN(c.cfg.Network.Networks(), c.cfg.Former); err != nil {
		return kernel.State{}, err
	}
	name, own := c.plane.Device(), c.set.Own.Subnets
	if m.inner < minMTU6 {
		own.V6 = netip.Prefix{} // the kernel would refuse it on such a link
	}
	// Faults here are mostly a read-only /proc/sys. What really fails for that shows below.
	settings := []error{c.k.SetIPv4(name), c.k.SetIPv6(name, own.V6.IsValid())}
	if c.kind.trait().asksHops {
		settings = append(settings, c.k.Loosen(name))
	}
	for _, err := range settings {
		if err != nil {
			notes := kernel.SettingNotes(name, err)
			r.note(notes...)
			c.warnOnce(err, "meaning", notes)
		}
	}
	return tunState(name, m.inner, own, c.cfg.Network), nil
}

// ownDevices names the devices of ours that a state has.
func ownDevices(s kernel.State) []string {
	var names []string
	for _, l := range s.Links {
		names = append(names, l.Name)
	}
	for _, v := range s.VTEPs {
		names = append(names, v.Name)
	}
	return names
}

// bring makes the kernel as want says: devices first, since all else is on them, and one that cannot be had costs only what
// is on it. done is how many changes were made.
func (c *controller) bring(r *round, want kernel.State) (done int) {
	missing, changes, done := c.syncVTEPs(r, want.VTEPs)
	want = want.Without(missing)
	devices := ownDevices(want)
	at := c.place(devices, want)
	have, err := c.k.State(at)
	if err != nil {
		r.try(err)
		return done
	}
	plan := kernel.Plan(have, want, c.ownership(devices))
	n, err := kernel.Apply(c.k, plan)
	if errors.Is(err, unix.EINVAL) && len(plan.DelRoutes) > 0 {
		// What was in the way may have been ours, and is gone now.
		if have, again := c.k.State(at); again == nil {
			var more int
			more, err = kernel.Apply(c.k, kernel.Plan(have, want, c.ownership(devices)))
			n += more
		}
	}
	r.try(err)
	changes, done = changes+plan.Len()+len(plan.Conflicts), done+n
	r.st.Adopted = append(r.st.Adopted, plan.Adopted...)
	r.st.Pending = changes - done
	if c.plane != nil {
		return done
	}
	r.note(c.checksums(devices))
	if r.st.Up = len(missing) == 0; r.st.Up && len(devices) > 0 {
		r.st.Device, r.st.Devices = devices[0], devices
	}
	return done
}

// place says where to look for what there is. A sandbox may not list neighbours, so that they are only asked for
// where some are wanted.
func (c *controller) place(devices []string, want kernel.State) kernel.Place {
	p := kernel.Place{Devices: devices, Neighs: len(want.Neighs) > 0 || len(want.VTEPs) > 0, Fdbs: len(want.VTEPs) > 0}
	if c.plane == nil {
		p.Underlay = c.under.Now.Name
	}
	return p
}

// syncVTEPs brings the vxlan devices to want. missing names those that are not there for us, changes is how many
// were to be made, and done how many were.
func (c *controller) syncVTEPs(r *round, want []kernel.VTEP) (missing []string, changes, done int) {
	for _, v := range want {
		p, n, err := c.syncVTEP(v)
		changes, done = changes+p.Len(), done+n
		if p.Adopted {
			r.st.Adopted = append(r.st.Adopted, "link "+v.Name)
		}
		if err != nil {
			r.try(err)
			if _, there := c.k.VTEP(v.Name); there != nil || errors.Is(err, errStrange) {
				missing = append(missing, v.Name) // nothing on another's device is ours
			}
		}
	}
	return missing, changes, done
}

// errStrange is for a device of our name that is not ours to take.
var errStrange = errors.New("not ours")

// syncVTEP brings one device to want; done is how many changes were made.
func (c *controller) syncVTEP(want kernel.VTEP) (p kernel.VTEPPlan, done int, err error) {
	have, err := c.k.VTEP(want.Name)
	switch {
	case errors.Is(err, kernel.ErrNotVXLAN):
		return p, 0, fmt.Errorf("%w: %w", errStrange, err)
	case errors.Is(err, kernel.ErrNoLink):
		p = kernel.PlanVTEP(nil, want)
	case err != nil:
		return p, 0, err
	default:
		addrs, err := c.k.LinkAddrs(want.Name)
		if err != nil {
			return p, 0, err
		}
		// One that we brought up stays ours, whatever somebody does to it.
		if why := kernel.VTEPStrange(have, addrs, c.networks()); why != "" && c.made[want.Name] != have.Index {
			return p, 0, fmt.Errorf("%w: %s", errStrange, why)
		}
		p = kernel.PlanVTEP(&have, want)
	}
	if p.Recreate != "" {
		c.log.Info("making the device anew", "device", want.Name, "because", p.Recreate)
		if err := c.k.DelLink(want.Name); err != nil {
			return p, 0, err
		}
	}
	set := p.Set
	if p.Create || p.Recreate != "" {
		if c.made[want.Name] != 0 && p.Create {
			c.log.Warn("device is gone, making it again", "device", want.Name)
		}
		if err := c.k.AddVTEP(want); err != nil {
			return p, 0, err
		}
		done, set = 1, []string{"alias", "up"}
	}
	// Before it is up: with the other family on, the kernel would greet the tunnel at once.
	c.warnOnce(c.k.SetVTEPSettings(want.Name, want.Local.Is6(), c.kind.trait().asksHops))
	n, err := c.k.SetVTEP(want, set)
	if done == 0 {
		done = n
	}
	if d, there := c.k.Device(want.Name); err == nil && there == nil {
		c.made[want.Name] = d.Index
	}
	return p, done, err
}

// ownership is which objects are ours to change. Of a data plane, whose one route stands for all peers, flannel's
// in its place is always taken over. Routes to single peers of flannel's shape are taken over once, at the start:
// later ones are somebody's own.
func (c *controller) ownership(devices []string) kernel.Ownership {
	o := kernel.Ownership{Links: devices, Networks: c.networks(), Sweep: true}
	if c.plane != nil {
		o.Adopts = func(r kernel.Route) bool {
			return r.Protocol == kernel.ProtoBoot && o.OwnsLink(r.Link) && !r.Gateway.IsValid() && slices.Contains(o.Networks, r.Dst)
		}
		return o
	}
	if c.settled {
		return o
	}
	lengths := map[bool]int{false: c.cfg.Network.SubnetLen, true: c.cfg.Network.IPv6SubnetLen}
	o.SweepAdopted = true
	o.Adopts = func(r kernel.Route) bool {
		if r.Protocol != kernel.ProtoBoot || !r.Gateway.IsValid() || !o.Within(r.Dst) || r.Dst.Bits() != lengths[r.Dst.Addr().Is6()] {
			return false
		}
		if o.OwnsLink(r.Link) {
			return r.OnLink && r.Gateway == r.Dst.Addr()
		}
		return r.Link == c.under.Now.Name && !r.OnLink
	}
	return o
}

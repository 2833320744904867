package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// reconcile makes the kernel follow the set: devices first, then peers' entries, then the routes
// that lead to them. It tries every part and joins the errors. mu is held.
func (b *kernelBackend) reconcile(ctx context.Context) error {
	if !b.set.Own.V4.IsValid() && !b.set.Own.V6.IsValid() {
		return b.giveUp()
	}
	var st Status
	was := b.under.now
	faults := []error{b.under.look(b.k, b.cfg.Underlay, b.cfg.UnderlayOptions, b.grace, b.log), b.look()}
	mtu, err := b.way.mtu(b.under.now.MTU)
	faults = append(faults, err)
	s := situation{set: b.set, under: b.under.now, mtu: mtu, hops: b.hops, tenure: b.tenure}
	d := b.way.want(s)
	b.tenure = d.tenure
	st.MTU, st.Device = mtu, d.device
	faults = append(faults, b.syncKernel(d, &st))
	var peers error
	if b.actor != nil {
		err, peers = b.actor.act(ctx, s, d.reached)
		st.Up = st.Up && !errors.Is(err, errNotStarted)
		faults = append(faults, err)
	}
	if note := b.strict.note(b.k, b.under.now.Link, d.reached); note != "" {
		st.Notes = append(st.Notes, note)
	}
	b.watch(d)
	err = errors.Join(faults...)
	st.InPlace = err == nil
	err = errors.Join(err, peers)
	if err != nil && ctx.Err() != nil {
		return err // we were interrupted, which says nothing about the kernel
	}
	b.report(st, d, err)
	if b.under.now != was && b.cfg.UnderlayChanged != nil { // after the report: whoever is told asks for the MTU
		b.cfg.UnderlayChanged(b.under.now)
	}
	return err
}

// errNotStarted says of an actor that what the node itself needs is not there.
var errNotStarted = errors.New("the node's own part is not in place")

// giveUp is for a set without a subnet of ours. Before the first lease there is nothing to
// do: what an earlier process left stays as it is. Afterwards another node has the subnet: its
// address goes. The rest stays, so that packets for the overlay do not leak to the default route.
func (b *kernelBackend) giveUp() error {
	if len(b.want.overlay.Addrs) == 0 {
		return nil
	}
	b.log.Warn("the subnet is another node's now: giving it up")
	d := b.want
	d.overlay.Addrs = nil
	var st Status
	for range 2 { // with its last IPv4 address a link loses its routes
		if err := b.syncKernel(d, &st); err != nil {
			return err
		}
	}
	return nil
}

// syncKernel brings devices, addresses, tables and routes to d. The first time it also takes
// over what flannel left; after that every change is somebody else's undone.
func (b *kernelBackend) syncKernel(d desired, st *Status) error {
	var faults []error
	var devices, missing []string
	changes, done := 0, 0
	for _, v := range d.vteps {
		p, n, err := b.syncVTEP(v)
		changes, done = changes+p.len(), done+n
		if p.Adopted {
			st.Adopted = append(st.Adopted, "link "+v.Name)
		}
		if err != nil {
			faults = append(faults, err)
			if _, there := b.k.vtep(v.Name); there != nil || errors.Is(err, errStrange) {
				missing = append(missing, v.Name)
				continue // nothing on another's device is ours
			}
		}
		devices = append(devices, v.Name)
	}
	want := d.overlay.without(missing)
	have, err := b.k.overlayState(devices, b.under.now.Link)
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	c := planOverlay(have, want, b.ownership(devices))
	n, err := applyOverlay(b.k, c)
	if errors.Is(err, unix.EINVAL) && len(c.DelRoutes) > 0 {
		// What was in the way may have been ours, and is gone now.
		if have, again := b.k.overlayState(devices, b.under.now.Link); again == nil {
			var more int
			more, err = applyOverlay(b.k, planOverlay(have, want, b.ownership(devices)))
			n += more
		}
	}
	faults = append(faults, err)
	changes, done = changes+c.len()+len(c.Conflicts), done+n
	st.Adopted = append(st.Adopted, c.Adopted...)
	st.Pending = changes - done
	st.Up = len(missing) == 0
	st.Notes = append(st.Notes, b.checksums(devices)...)
	if st.Up && len(devices) > 0 {
		st.Device, st.Devices = devices[0], devices
	}
	for _, a := range st.Adopted {
		b.log.Info("taken over", "object", a)
	}
	err = errors.Join(faults...)
	switch {
	case done > 0 && b.settled && d.equal(b.want):
		st.Repaired = uint64(done)
		b.log.Warn("repaired what was changed", "changes", done)
	case err == nil:
		b.want = d
	}
	b.settled = b.settled || err == nil
	return err
}

func (d desired) equal(e desired) bool {
	return slices.Equal(d.vteps, e.vteps) && d.overlay.equal(e.overlay)
}

// errStrange is for a device of our name that is not ours to take.
var errStrange = errors.New("not ours")

// syncVTEP brings one device to want; done is how many changes were made.
func (b *kernelBackend) syncVTEP(want VTEP) (p vtepPlan, done int, err error) {
	have, err := b.k.vtep(want.Name)
	switch {
	case errors.Is(err, errNotVXLAN):
		return p, 0, fmt.Errorf("%w: %w", errStrange, err)
	case errors.Is(err, errNoLink):
		p = planVTEP(nil, want)
	case err != nil:
		return p, 0, err
	default:
		addrs, err := b.k.linkAddrs(want.Name)
		if err != nil {
			return p, 0, err
		}
		// One that we brought up stays ours, whatever somebody does to it.
		if why := vtepStrange(have, addrs, b.networks()); why != "" && b.made[want.Name] != have.Index {
			return p, 0, fmt.Errorf("%w: %s", errStrange, why)
		}
		p = planVTEP(&have, want)
	}
	if p.Recreate != "" {
		b.log.Info("making the device anew", "device", want.Name, "because", p.Recreate)
		if err := b.k.delLink(want.Name); err != nil {
			return p, 0, err
		}
	}
	set := p.Set
	if p.Create || p.Recreate != "" {
		if b.made[want.Name] != 0 && p.Create {
			b.log.Warn("device is gone, making it again", "device", want.Name)
		}
		if err := b.k.addVTEP(want); err != nil {
			return p, 0, err
		}
		done, set = 1, []string{"alias", "up"}
	}
	// Before it is up: with the other family on, the kernel would greet the tunnel at once.
	b.warnOnce(b.k.setVTEPSettings(want.Name, want.Local.Is6(), b.way.trait().looks))
	n, err := b.k.setVTEP(want, set)
	if done == 0 {
		done = n
	}
	if d, there := b.k.device(want.Name); err == nil && there == nil {
		b.made[want.Name] = d.Index
	}
	return p, done, err
}

// checksums keeps devices from the fault that checksumFault tells of, and says so.
func (b *kernelBackend) checksums(devices []string) []string {
	if len(devices) == 0 || !checksumFault(b.release) {
		return nil
	}
	for _, name := range devices {
		if _, err := b.k.stopTxChecksum(name); err != nil {
			b.warnOnce(err)
			return []string{fmt.Sprintf("kernel %s may send wrong outer UDP checksums when it translates addresses, and switching the offload off failed (%v): use Linux 5.7 or newer", b.release, err)}
		}
	}
	return []string{fmt.Sprintf("kernel %s may send wrong outer UDP checksums when it translates addresses: checksum offload is off on %v, which costs throughput; Linux 5.7 has the fix", b.release, devices)}
}

// ownership is which objects are ours to change. Routes of flannel's shape are taken over once,
// at the start: later ones are somebody's own.
func (b *kernelBackend) ownership(devices []string) Ownership {
	o := Ownership{Links: devices, Networks: b.networks(), Sweep: true, Adopts: func(Route) bool { return false }}
	if b.settled {
		return o
	}
	lengths := map[bool]int{false: b.cfg.Network.SubnetLen, true: b.cfg.Network.IPv6SubnetLen}
	o.Adopts = func(r Route) bool {
		if r.Protocol != protoBoot || !r.Gateway.IsValid() || !o.within(r.Dst) || r.Dst.Bits() != lengths[r.Dst.Addr().Is6()] {
			return false
		}
		if slices.Contains(devices, r.Link) {
			return r.OnLink && r.Gateway == r.Dst.Addr()
		}
		return r.Link == b.under.now.Link && !r.OnLink
	}
	return o
}

// watch tells the monitor what to look for.
func (b *kernelBackend) watch(d desired) {
	l := interest{own: map[int]bool{}, under: b.under.now.Index, names: map[string]bool{b.cfg.Underlay.Link: true}, entries: true, networks: b.networks()}
	for _, v := range d.vteps {
		l.names[v.Name] = true
		if dev, err := b.k.device(v.Name); err == nil {
			l.own[dev.Index] = true
		}
	}
	if b.way.trait().looks {
		l.hosts = b.outer()
	}
	b.monitor.watch(l)
}

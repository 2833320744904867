package routing

import (
	"errors"
	"slices"
	"time"

	"weft/lease"
)

// syncKernel brings device, addresses and routes to what the set wants. The first time
// it also takes over what flannel left; after that every change is somebody else's undone.
func (u *UDP) syncKernel(mtu int, st *Status) error {
	name, own := u.device.name, u.set.Own.Subnets
	if mtu < minMTU6 {
		own.V6 = lease.Subnets{}.V6 // the kernel would refuse it on such a link
	}
	// Faults here are mostly a read-only /proc/sys. What really fails for that shows below.
	settings := []error{u.k.setIPv4(name), u.k.setIPv6(name, own.V6.IsValid())}
	if u.cfg.carried.trait().looks {
		settings = append(settings, u.k.loosen(name))
	}
	for _, err := range settings {
		if err == nil {
			continue
		}
		notes := settingNotes(name, err)
		st.Notes = append(st.Notes, notes...)
		u.warnOnce(err, "meaning", notes)
	}
	have, err := u.k.state(name)
	if err != nil {
		return err
	}
	want := wantState(name, mtu, own, u.cfg.Network)
	want.Routes = append(want.Routes, u.peers.routes...)
	c := Plan(have, want, u.ownership())
	for _, a := range c.Adopted {
		u.log.Info("taken over", "object", a)
	}
	done, err := applyChanges(u.k, c)
	if own.V6.IsValid() {
		err = errors.Join(err, u.k.keepGateway(name, u.device.index))
	}
	st.Pending = c.Len() + len(c.Conflicts) - done
	st.Adopted = c.Adopted
	if done > 0 && want.equal(u.want) {
		st.Repaired = uint64(done)
		u.log.Warn("repaired what was changed", "device", name, "changes", done)
	}
	if err == nil {
		u.want = want
	}
	return err
}

// keepGateway has the TUN's IPv6 gateway among the neighbours for good, so that none is ever to be made.
func (k *Kernel) keepGateway(name string, index int) error {
	have, err := k.neighs(map[int]string{index: name})
	if err != nil || slices.ContainsFunc(have, func(n Neigh) bool { return n.Addr == gateway6 && n.Permanent }) {
		return err
	}
	return wrap("set neighbour on "+name, k.SetNeigh(Neigh{Link: name, Addr: gateway6})) // a TUN has no link addresses
}

// warnOnce logs a fault that does not matter enough to fail, the first time, with more attributes.
func (u *UDP) warnOnce(err error, more ...any) {
	if u.warned == nil {
		u.warned = map[string]bool{}
	}
	if !u.warned[err.Error()] {
		u.warned[err.Error()] = true
		u.log.Warn("not set", append([]any{"error", err}, more...)...)
	}
}

// report publishes what a reconcile found, and logs an error that is new.
func (u *UDP) report(st Status, mtu int, err error) {
	if err != nil && u.over != nil && u.over() {
		return // the data plane is ending, which says nothing about the kernel
	}
	u.statusMu.Lock()
	old := u.status
	st.Type, st.Path, st.MTU = old.Type, u.plane.pathName(), mtu
	st.Device, st.Underlay, st.UnderlayLost = u.device.name, u.under.now, u.under.lost
	st.InPlace, st.LastReconcile = err == nil, time.Now()
	st.Repaired += old.Repaired
	if len(old.Adopted) > 0 {
		st.Adopted = old.Adopted
	}
	if err != nil {
		st.LastError = err.Error()
	}
	u.status = st
	u.statusMu.Unlock()
	switch {
	case err != nil && st.LastError != old.LastError:
		u.log.Error("reconcile", "error", err)
	case err == nil && old.LastError != "":
		u.log.Info("reconciled, all in place")
	}
}

package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"weft/tunnel"
)

// underlayGrace is how long a lost underlay address is waited for before another
// one of the link takes its place: longer than a DHCP client or a network manager
// needs to take an address off and put it back.
const underlayGrace = 10 * time.Second

// tableKey is what the data plane's table was made from, beside the set.
type tableKey struct {
	under Underlay
	mtu   int
	// displaced and ways are texts, so that the key is comparable.
	displaced, ways string
}

// reconcile makes kernel and data plane follow the set: what carries packets
// first, the routes that lead to it last. It tries every part and joins the errors. c is what
// made it necessary. mu is held.
func (u *UDP) reconcile(c change) error {
	if !u.set.Own.V4.IsValid() && !u.set.Own.V6.IsValid() {
		return u.giveUp()
	}
	var st Status
	var faults []error
	u.reapPorts()
	was := u.under.now
	faults = append(faults, u.under.look(u.k, u.cfg.Underlay, u.cfg.UnderlayOptions, u.grace, u.log))
	m, err := u.cfg.carried.sizes(u.under.now)
	mtu := m.inner
	faults = append(faults, err, u.listen(), u.look(), u.swapTable(m, &st), u.followHops(c))
	path := u.plane.path
	if err := u.ensureDevice(); err != nil {
		faults = append(faults, err)
	} else {
		faults = append(faults, u.syncKernel(mtu, &st))
	}
	if u.plane.path != path {
		u.nudge(changedObjects) // the sockets follow the TUN
	}
	if note := u.cfg.carried.note(); note != "" {
		st.Notes = append(st.Notes, note)
	}
	st.Notes = append(st.Notes, u.plane.notes()...)
	if note := u.strict.note(u.k, u.under.now.Link, st.Reached); note != "" {
		st.Notes = append(st.Notes, note)
	}
	u.watch()
	err = errors.Join(faults...)
	u.report(st, mtu, err)
	if u.under.now != was && u.cfg.UnderlayChanged != nil { // after the report: whoever is told asks for the MTU
		u.cfg.UnderlayChanged(u.under.now)
	}
	return err
}

// giveUp is for a set without a subnet of ours. Before the first lease there is
// nothing to do: what an earlier process left stays as it is. Afterwards another node
// has the subnet: we carry nothing more, and take its address off. The routes stay, so
// that packets for the overlay end here and do not leak to the default route.
func (u *UDP) giveUp() error {
	if len(u.want.Addrs) == 0 {
		return nil
	}
	u.log.Warn("the subnet is another node's now: giving it up", "device", u.device.name)
	if err := u.plane.publish(tunnel.Spec{UnderlayMTU: u.under.now.MTU, Check: tunnel.CheckStrict}); err != nil {
		return err
	}
	u.table = tableKey{}
	want := State{Links: u.want.Links, Routes: u.want.Routes}
	for range 2 { // with its last IPv4 address a link loses its routes
		have, err := u.k.state(u.device.name)
		if err != nil {
			return err
		}
		if _, err := applyChanges(u.k, Plan(have, want, u.ownership())); err != nil {
			return err
		}
	}
	u.want = want
	return nil
}

// reapPorts detaches ports that died, so that they are opened anew.
func (u *UDP) reapPorts() {
	u.lostMu.Lock()
	lost := u.lost
	u.lost = map[tunnel.PortID]bool{}
	u.lostMu.Unlock()
	for id := range lost {
		if u.plane.reap(id) {
			u.log.Warn("port of the data plane died, opening it anew", "port", id)
		}
	}
}

// look finds the ways to the peers, for a type with several. While the underlay is lost they stay
// what they were.
func (u *UDP) look() error {
	if !u.cfg.carried.trait().looks || u.under.lost != "" {
		return nil
	}
	ways, err := u.k.nextHops(u.outer())
	if err == nil {
		u.ways = ways
	}
	return err
}

// outer are the peers' addresses.
func (u *UDP) outer() []netip.Addr {
	var as []netip.Addr
	for _, r := range u.set.Peers {
		as = append(as, valid(r.PublicIP, r.PublicIPv6)...)
	}
	return as
}

// listen binds the underlay sockets. While an address is lost its socket stays: it
// works again the moment the address is back.
func (u *UDP) listen() error {
	var faults []error
	for _, f := range []struct {
		six  bool
		addr netip.Addr
	}{{false, u.under.now.Addr4}, {true, u.under.now.Addr6}} {
		var local netip.AddrPort
		if f.addr.IsValid() {
			local = netip.AddrPortFrom(f.addr, u.cfg.Options.Port)
		}
		err := u.plane.listen(f.six, local, u.cfg.Underlay.Link)
		if errors.Is(err, unix.EADDRINUSE) && u.freePort() {
			err = u.plane.listen(f.six, local, u.cfg.Underlay.Link)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w: is flanneld or another weftd running here?", err)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// swapTable gives the data plane the peers, if they, the underlay or the ways to them
// changed. A bad record is reported; it is no fault of ours to retry.
func (u *UDP) swapTable(m mtus, st *Status) error {
	old := u.Status()
	st.Peers, st.Skipped, st.Reached = old.Peers, old.Skipped, old.Reached
	displaced, err := u.k.Displaced(u.cfg.Network, u.outer())
	if err != nil {
		return err
	}
	key := tableKey{u.under.now, m.inner, fmt.Sprint(displaced), fmt.Sprint(u.ways)}
	if key == u.table {
		return nil
	}
	u.peers = u.cfg.carried.peers(situation{set: u.set, under: u.under.now, mtu: m.inner, hops: u.ways, tenure: u.tenure}, m.outer, displaced)
	if err := u.peers.unsound(u.plane.publish(u.peers.spec)); err != nil {
		return err
	}
	u.table, u.tenure = key, u.peers.tenure
	u.hops.follow(u.peers.spec.Peers)
	st.Peers, st.Skipped, st.Reached = u.peers.used(), u.peers.skipped(), u.peers.reached
	u.peers = carriedPeers{routes: u.peers.routes} // the rest is in the table and in the status
	if u.cfg.carried.trait().oneWay {
		st.Reached = onlySkipped(st.Reached)
	}
	if !slices.Equal(st.Skipped, old.Skipped) {
		for _, s := range st.Skipped {
			u.log.Warn("peer not used", "peer", s.Peer, "reason", s.Reason)
		}
	}
	return nil
}

// split takes apart what errors.Join joined.
func split(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// ensureDevice makes sure that we hold the TUN, and opens it if not.
func (u *UDP) ensureDevice() error {
	if u.device.name == "" {
		return u.firstDevice()
	}
	d, err := u.k.device(u.device.name)
	if err == nil && d.Index == u.device.index && u.plane.tun != 0 {
		return nil
	}
	if err != nil && !errors.Is(err, errNoLink) {
		return err
	}
	u.log.Warn("device is gone, making it again", "device", u.device.name)
	return u.openDevice(u.device.name)
}

// firstDevice chooses the TUN's name and opens it. A name that turns out to be in
// use by another process, with another network, leaves the next.
func (u *UDP) firstDevice() error {
	ds, err := u.k.devices()
	if err != nil {
		return err
	}
	as, err := u.k.addrInfos()
	if err != nil {
		return err
	}
	addrs := make(map[int][]netip.Addr)
	for _, a := range as {
		addrs[a.index] = append(addrs[a.index], a.addr)
	}
	nets, inUse := networks(u.cfg.Network), map[string]bool{}
	for {
		name := pickDevice(ds, addrs, nets, inUse)
		i := slices.IndexFunc(ds, func(d device) bool { return d.Name == name })
		if i < 0 { // none of this network
			name = pickDevice(ds, addrs, u.networks(), inUse)
		}
		err := u.openDevice(name)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY):
			return err
		case i >= 0 && len(addrs[ds[i].Index]) > 0:
			return fmt.Errorf("%w: a running process has it with an address in this network: stop flanneld or the other weftd", err)
		}
		inUse[name] = true
	}
}

// openDevice opens the TUN by name and notes its number.
func (u *UDP) openDevice(name string) error {
	if err := u.plane.openTUN(name); err != nil {
		return err
	}
	d, err := u.k.device(name)
	if err != nil {
		return err
	}
	u.device = deviceState{name: name, index: d.Index}
	return nil
}

// watch tells the monitor what to look for.
func (u *UDP) watch() {
	i := interest{
		own:      map[int]bool{u.device.index: u.device.index != 0},
		under:    u.under.now.Index,
		names:    map[string]bool{u.device.name: u.device.name != "", u.cfg.Underlay.Link: true},
		filters:  true,
		networks: u.networks(),
		hops:     u.hops.interest(),
	}
	if u.cfg.carried.trait().looks {
		i.hosts = u.outer()
	}
	for _, f := range u.plane.raws() {
		if f.tap != 0 {
			i.own[f.tap], i.names[f.port.TAP()] = true, true
		}
	}
	u.monitor.watch(i)
}

package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/lease"
	"weft/routing/event"
	"weft/routing/internal/errno"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
)

// underlayGrace is how long a lost underlay address may be away before another one of
// the link takes its place: longer than a DHCP client or a network manager needs to
// remove an address and add it again.
const underlayGrace = 10 * time.Second

// round is one reconcile: what it found, and what is wrong. A failure does not stop the rest.
type round struct {
	st     Status
	faults []error
}

func (r *round) try(err error) { r.faults = append(r.faults, err) }

func (r *round) note(notes ...string) {
	for _, n := range notes {
		if n != "" {
			r.st.Notes = append(r.st.Notes, n)
		}
	}
}

// reconcile makes kernel and data plane follow the set: first the devices and ports that carry packets,
// last the routes that lead to them. It tries every part and joins the errors. ch is what made it necessary. mu is held.
func (c *Node) reconcile(ctx context.Context, ch kernel.Change) error {
	if !c.set.Own.V4.IsValid() && !c.set.Own.V6.IsValid() {
		return c.giveUp()
	}
	if err := c.awaitSeal(); err != nil {
		c.report(Status{MTU: c.MTU()}, err)
		return err
	}
	r := &round{}
	was := c.under.Now
	r.try(c.under.Refresh(c.out, c.cfg.Underlay, c.cfg.UnderlayOptions, c.grace, c.log))
	r.try(c.askHops())
	sizes, err := c.kind.sizes(c.under.Now)
	r.try(err)
	if c.plane != nil {
		// While an address is lost its socket stays: it works again as soon as the address is back.
		r.try(c.plane.Listen(c.under.Now.Addr4, c.under.Now.Addr6, c.cfg.Underlay.Name, c.networks()))
	}
	looked := c.readFeatures(ch)
	r.try(c.decide(sizes))
	if by := c.joiner(); by != "" {
		r.try(fmt.Errorf("a device of the underlay joins datagrams of UDP that nobody could take apart again, so "+
			"that those of peers are dropped where they may be joined: %s", by))
	}
	if c.plane != nil {
		r.try(c.plane.UpdateNextHops(c.cfg.Underlay.Name, ch))
	}
	c.seal()
	var out outcome
	if !c.about.last {
		out = c.sync(ctx, r)
	}
	c.syncKernel(r, sizes)
	if c.about.last {
		out = c.sync(ctx, r)
	}
	if c.plane != nil {
		c.plane.Begin(false)
	}
	c.answerForPods(r)
	c.chooseOutlet() // not before packets flow: until then superpackets leave whole
	r.try(out.node)
	r.st.Up = r.st.Up && !errors.Is(out.node, errNotStarted)
	err = errors.Join(r.faults...)
	r.st.MTU, r.st.InPlace = sizes.inner, err == nil || c.inPlaceBefore() && errno.Exhausted(err)
	c.tellPeers(r, out)
	c.tellNotes(r)
	c.shadows(r)
	c.watch()
	err = errors.Join(r.faults...)
	if err != nil && (ctx.Err() != nil || c.over != nil && c.over()) {
		return err // we were interrupted, which says nothing about the kernel
	}
	c.report(r.st, err)
	if looked {
		c.tendForwarding()
	}
	if c.under.Now != was && c.cfg.UnderlayChanged != nil { // after the report: whoever is told asks for the MTU
		c.cfg.UnderlayChanged(c.under.Now)
	}
	return err
}

// inPlaceBefore reports whether the reconcile before found everything in place.
func (c *Node) inPlaceBefore() bool {
	c.statusMu.Lock()
	defer c.statusMu.Unlock()
	return c.status.InPlace
}

// giveUp handles a set without a subnet of ours. Before the first lease there is nothing to do: what an
// earlier process left stays as it is. Later it means that another node has the subnet: we carry no more
// packets, and remove its address. The rest stays, so that packets for the overlay end here and do not leave
// by the default route.
func (c *Node) giveUp() error {
	if len(c.inPlace.Addrs) == 0 {
		return nil
	}
	c.logger().Warn("the subnet is another node's now: giving it up")
	c.want.stale = true
	if c.plane != nil {
		if _, err := c.plane.Publish(tunnel.Spec{UnderlayMTU: c.under.Now.MTU, Check: tunnel.CheckStrict}); err != nil {
			return err
		}
	}
	want := c.inPlace
	want.Addrs = nil
	for range 2 { // with its last IPv4 address a link loses its routes
		var r round
		if c.bring(&r, want); errors.Join(r.faults...) != nil {
			return errors.Join(r.faults...)
		}
	}
	c.inPlace = want
	return nil
}

// askHops asks how the kernel would send to the peers, for a type that it matters to. While the underlay is
// lost the answers stay what they were: without it there are none, and what stands works again the moment it
// is back.
func (c *Node) askHops() error {
	if !c.about.asksHops || c.away() || c.under.Lost != "" {
		return nil
	}
	hops, err := c.k.NextHops(c.outer())
	if err == nil {
		c.hops = hops
	}
	return err
}

// decide asks the type what it wants, if the set or the situation is another one than the last time, and
// gives the data plane its table. A bad record is reported; it is no fault of ours to retry.
func (c *Node) decide(m mtus) error {
	s := situation{under: c.under.Now, mtu: m.inner, outer: m.outer, hops: c.hops, joiner: c.joiner()}
	if (c.plane != nil || c.about.tunnels) && !c.away() { // the overlay's routes are no datagram's elsewhere
		var err error
		if s.displaced, err = underlay.FindDisplaced(c.k, c.cfg.Network.Networks(), c.outer()); err != nil {
			return err
		}
	}
	if !c.want.stale && s.equal(c.want.from) {
		return nil
	}
	d := c.kind.want(c.situation(s))
	if d.spec != nil {
		refused, err := c.plane.Publish(*d.spec)
		if err != nil {
			return err
		}
		d.refuse(refused)
	}
	w := decision{desired: d, from: s, reached: d.reached(!c.about.uniform), peers: d.peers(),
		skips: d.skipped()}
	w.ways, w.spec = nil, nil
	c.want = w
	return nil
}

// situation completes s by the set and what the last decision made of the one before.
func (c *Node) situation(s situation) situation {
	s.set, s.claims = c.set, c.want.claims
	return s
}

// sync has the driver do its part.
func (c *Node) sync(ctx context.Context, r *round) outcome {
	out := c.driver.sync(ctx, c.situation(c.want.from), &c.want.desired)
	c.absent = out.absent
	r.try(out.devices)
	r.note(out.notes...)
	return out
}

// toldFaults is how many different faults of peers the error of a reconcile has. The status says of each peer
// what is wrong.
const toldFaults = 8

// tellPeers enters into the status how each record is used, without those for which the driver failed.
func (c *Node) tellPeers(r *round, out outcome) {
	r.st.Reached, r.st.Skipped, r.st.Peers = c.want.reached, c.want.skips, c.want.peers
	if len(out.peers) == 0 {
		return
	}
	type about struct {
		subnets lease.Subnets
		subnet  netip.Prefix
	}
	failed := make(map[about]error, len(out.peers))
	said := map[string]bool{}
	for _, f := range out.peers {
		k := about{f.subnets, f.subnet}
		failed[k] = cmp.Or(failed[k], f.err)
		if text := f.err.Error(); !said[text] {
			said[text] = true
			if len(said) <= toldFaults {
				r.try(f.err)
			}
		}
	}
	if more := len(said) - toldFaults; more > 0 {
		r.try(fmt.Errorf("%d other faults of peers: weft peers says which", more))
	}
	reached := slices.Clone(c.want.reached)
	for i, x := range reached {
		err := cmp.Or(failed[about{x.Subnets, x.Subnet}], failed[about{subnets: x.Subnets}])
		if err != nil && (x.How == HowCommand || x.How == HowController) {
			reached[i].skip("%v", err)
		}
	}
	r.st.Reached, r.st.Skipped, r.st.Peers = reached, skippedOf(reached), usedPeers(reached)
}

// tellNotes enters into the status what works less well than it could.
func (c *Node) tellNotes(r *round) {
	if c.plane != nil {
		r.note(c.about.note)
		r.note(c.plane.Notes()...)
	}
	r.note(c.strict.Note(c.out, c.under.Now.Name, tunnelled(r.st.Reached)))
}

// watch tells the monitor what to look for.
func (c *Node) watch() {
	out := kernel.Interest{
		Under: c.under.Now.Index, Names: map[string]bool{c.cfg.Underlay.Name: true}, Below: map[int]bool{},
	}
	for _, d := range c.devices.List {
		out.Below[d.Index] = true
	}
	i := out
	if c.away() {
		c.outside.Watch(out)
		i = kernel.Interest{Names: map[string]bool{}}
	}
	i.Own, i.Networks = map[int]bool{}, c.networks()
	if c.about.asksHops && !c.away() {
		i.Hosts = c.outer()
	}
	if c.plane != nil {
		c.plane.AddInterest(&i)
	} else {
		i.Entries = true
	}
	for _, name := range ownDevices(c.want.State) {
		i.Names[name] = true
		if dev, err := c.k.Device(name); err == nil {
			i.Own[dev.Index] = true
		}
	}
	c.monitor.Watch(i)
}

// report publishes what a reconcile found, and logs what is new: peers that are not used, and an error.
func (c *Node) report(st Status, err error) {
	c.statusMu.Lock()
	old := c.status
	st.Type, st.Path, st.Encrypt, st.Forwarding = old.Type, old.Path, old.Encrypt, old.Forwarding
	if c.plane != nil {
		st.Path, st.Devices = c.plane.PathName(), c.plane.Devices()
	}
	st.Underlay, st.UnderlayLost, st.UnderlayDevices = c.under.Now, c.under.Lost, c.devices
	st.LastReconcile = time.Now()
	st.Repaired += old.Repaired
	if len(old.Adopted) > 0 {
		st.Adopted = old.Adopted
	}
	if err != nil {
		st.LastError = strings.ReplaceAll(err.Error(), "\n", "; ") // joined errors have lines, and reasons one
	}
	c.status = st
	c.statusMu.Unlock()
	c.protect()
	if !slices.Equal(st.Skipped, old.Skipped) {
		known := make(map[Skipped]bool, len(old.Skipped))
		for _, s := range old.Skipped {
			known[s] = true
		}
		for _, s := range st.Skipped {
			if !known[s] {
				c.log.Warn("peer not used", "event", event.PeerUnused, "peer", s.Peer, "id", s.Node, "addr", s.Address,
					"reason", s.Reason)
			}
		}
	}
	switch {
	case err != nil && st.LastError != old.LastError:
		c.log.Error("reconcile", "error", err)
	case err == nil && old.LastError != "":
		c.log.Info("reconciled, all in place")
	}
}

// checksums keeps devices from the fault that kernel.ChecksumFault tells of, and says so; "" without it.
func (c *Node) checksums(devices []string) string {
	if len(devices) == 0 || !kernel.ChecksumFault(c.release) {
		return ""
	}
	for _, name := range devices {
		d, err := c.k.Device(name)
		if err == nil {
			err = c.k.SetFeature(d.Index, kernel.TxChecksum, false)
		}
		if err != nil {
			c.warnOnce(err)
			return fmt.Sprintf("kernel %s may send wrong outer UDP checksums when it translates addresses, and "+
				"switching the offload off failed (%v): use Linux 5.7 or newer", c.release, err)
		}
	}
	return fmt.Sprintf("kernel %s may send wrong outer UDP checksums when it translates addresses: checksum "+
		"offload is off on %v, which costs throughput; Linux 5.7 has the fix", c.release, devices)
}

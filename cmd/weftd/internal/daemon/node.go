package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/internal/records"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
)

// The control socket's server calls these methods.
var _ control.Node = (*Daemon)(nil)

// Status implements control.Node.
func (d *Daemon) Status() control.Status {
	reasons := d.Reasons()
	s := control.Status{
		Version: d.version, Name: d.called(), NodeID: d.identity(), PID: os.Getpid(),
		StartedAt: d.started, Uptime: int64(time.Since(d.started) / time.Second),
		Ready: len(reasons) == 0, NotReady: reasons,
		Store: d.source.status(d.heardAtStart()),
		Cache: control.Cache{File: d.cacheFile()},
	}
	if info, err := os.Stat(s.Cache.File); err == nil {
		s.Cache.SavedAt = info.ModTime()
	}
	s.Notes, s.Namespace, s.Custody = d.Notes(), d.namespaceStatus(), d.custodyStatus()
	s.Pods = d.podCounts()
	g, _ := d.current()
	if g == nil {
		return s
	}
	st, b := g.member.Status(), g.backend.Status()
	s.Store = d.source.status(st)
	s.Lease = leaseStatus(st)
	s.Cache.Used = g.cached
	s.Alarm, s.Peers, s.Rejected = st.Alarm, st.Peers, len(st.Rejected)
	s.Backend, s.Underlay = backendStatus(b), underlayStatus(b)
	s.Controller = controllerStatus(b.Hook)
	s.Backend.Port = int(routing.FactsOf(g.footing.network).Port)
	s.Config = d.configStatus(g)
	s.Rules = rulesStatus(b.Rules)
	if why := g.cutOffNow(); why != "" {
		s.Backend.Notes = append(s.Backend.Notes, why)
	}
	if g.plane != nil {
		s.Counters = counters(g.plane)
		s.Notes = append(s.Notes, forgerNotes(g.plane.Engine().Forgers(), time.Now())...)
		s.Notes = append(s.Notes, offloadNotes(s.Counters.Offloads, b.Underlay.Name)...)
	}
	for _, t := range b.Traffic() {
		s.Counters.Devices = append(s.Counters.Devices, control.DeviceCounters{
			Name: t.Name, Overlay: t.Own, TxPackets: t.Counters.TxPackets, TxBytes: t.Counters.TxBytes, TxDropped: t.Counters.TxDropped, TxErrors: t.Counters.TxErrors,
			RxPackets: t.Counters.RxPackets, RxBytes: t.Counters.RxBytes, RxDropped: t.Counters.RxDropped, RxErrors: t.Counters.RxErrors,
		})
	}
	return s
}

// storeStatus adds to s when the store answered last, and its error.
func storeStatus(st lease.Status, s control.Store) control.Store {
	s.Connected, s.LastSeen = st.StoreErr == nil && !st.StoreSeen.IsZero(), st.StoreSeen
	s.ClusterID, s.Revision = st.ClusterID, st.Revision
	if st.StoreErr != nil {
		s.Refuses, s.FailingSince = st.StoreRefuses, st.StoreSince
		s.Error = st.StoreErr.Error()
	}
	return s
}

func leaseStatus(st lease.Status) *control.Lease {
	if st.Own.Subnets == (lease.Subnets{}) {
		return nil
	}
	l := &control.Lease{
		Subnet: st.Own.V4, IPv6Subnet: st.Own.V6, Held: st.State == lease.Held,
		Reservation: st.Own.Reservation, Expires: st.Own.Expires,
	}
	if st.Err != nil {
		l.Detail = st.Err.Error()
	}
	return l
}

func backendStatus(b routing.Status) control.Backend {
	out := control.Backend{
		Type: b.Type, Path: b.Path, Encrypt: b.Encrypt, Device: b.Device(), MTU: b.MTU, InPlace: b.InPlace,
		LastReconcile: b.LastReconcile, Error: b.LastError,
	}
	out.Notes = slices.Clone(b.Notes)
	for _, a := range b.Adopted {
		out.Notes = append(out.Notes, "taken over from flannel: "+a)
	}
	for _, s := range b.Skipped {
		out.Notes = append(out.Notes, fmt.Sprintf("peer %s is not used: %s", beside(s.Peer, s.Node, s.Address), s.Reason))
	}
	return out
}

// controllerStatus is nil for a backend without a controller.
func controllerStatus(h routing.HookStatus) *control.Controller {
	if h.Controller == "" {
		return nil
	}
	return &control.Controller{
		URL: h.Controller, Taken: h.Taken, Accepted: h.Accepted, Pending: h.Pending, Refused: h.Refused, Fault: h.Fault, Since: h.Since, Failures: h.Failures,
	}
}

func underlayStatus(b routing.Status) control.Underlay {
	u := b.Underlay
	out := control.Underlay{
		Link: u.Name, MTU: u.MTU, Lost: b.UnderlayLost, Forwarding: b.Forwarding,
		Address: u.Addr4, IPv6Address: u.Addr6, PublicIP: u.Ext4, PublicIPv6: u.Ext6,
		DevicesUnknown: b.UnderlayDevices.Unknown,
	}
	for _, d := range b.UnderlayDevices.List {
		out.Devices = append(out.Devices, control.Device{Name: d.Name, Features: d.Features.Names()})
	}
	return out
}

func counters(b dataPlane) control.Counters {
	t := b.Engine().Stats()
	c := control.Counters{
		Egress: flow(t.Egress), Ingress: flow(t.Ingress),
		ICMPSent: t.ICMPSent, ICMPSuppressed: t.ICMPSuppressed,
		Fragmented: t.Fragmented, Completed: t.Completed, SocketOverflow: t.SocketOverflow, HeldBack: t.HeldBack,
	}
	for _, w := range b.Engine().Workers() {
		c.Workers = append(c.Workers, control.Worker{
			Egress: w.Egress, Ingress: w.Ingress, Reads: w.Reads, Writes: w.Writes, Wakeups: w.Wakeups, Busy: int64(w.Busy),
		})
	}
	for _, o := range t.Offloads {
		c.Offloads = append(c.Offloads, control.Offload{Name: o.Offload.String(), State: o.State.String(), Calls: o.Calls, Packets: o.Segments})
	}
	for _, o := range t.Outlets {
		c.Outlets = append(c.Outlets, control.Outlet{
			Local: o.Local, Outlet: o.Now.String(), Because: o.Why, Measured: o.Try, Trials: o.Trials, Changes: o.Changes,
			Whole: float64(o.Whole) / 1000, Runs: float64(o.Runs) / 1000,
		})
	}
	if n, err := b.DeviceDrops(); err == nil { // the device may be gone just now
		c.DeviceDropped = n
	}
	return c
}

func flow(f tunnel.Flow) control.Flow {
	return control.Flow{
		Received: f.Received, Delivered: f.Delivered,
		ReceivedBytes: f.ReceivedBytes, DeliveredBytes: f.DeliveredBytes, Drops: drops(f.Drops),
	}
}

func drops(n [tunnel.NumDropReasons]uint64) []control.Drop {
	var out []control.Drop
	for r := range tunnel.NumDropReasons {
		if n[r] > 0 {
			out = append(out, control.Drop{Reason: r.String(), Packets: n[r], Admit: r.Admit()})
		}
	}
	return out
}

// Peers implements control.Node.
func (d *Daemon) Peers() control.Peers {
	out := control.Peers{Peers: []control.Peer{}}
	g, _ := d.current()
	if g == nil {
		return out
	}
	status := g.backend.Status()
	var peers []tunnel.PeerStats
	var strangers []tunnel.Stranger
	if g.plane != nil {
		peers, strangers = g.plane.Engine().Peers(), g.plane.Engine().Strangers()
	}
	stats := map[netip.Addr][]tunnel.PeerStats{}
	for _, p := range peers {
		stats[p.Addr] = append(stats[p.Addr], p)
	}
	bySubnets := map[lease.Subnets][]routing.Reached{}
	for _, r := range status.Reached {
		bySubnets[r.Subnets] = append(bySubnets[r.Subnets], r)
	}
	asked := statesByAddr(g.probes())
	out.Probing = g.prober != nil
	encrypted := g.encryption(time.Now())
	for _, r := range g.peers() {
		p := peer(r)
		p.Probes = probesOf(asked, r)
		found := bySubnets[r.Subnets]
		for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
			if refused(found, a) { // the counters of that address are another peer's
				continue
			}
			for _, s := range stats[a] {
				if s.Name == p.Name {
					p.Path = status.Path
					fill(&p, s)
				}
			}
		}
		p.Reached, p.Encryption = reached(found), encryptionOf(encrypted, p.Subnets)
		if slices.ContainsFunc(found, func(w routing.Reached) bool { return w.How != routing.HowSkipped }) {
			p.Path = status.Path
			if p.MTU == 0 {
				p.MTU = status.MTU
			}
		}
		out.Peers = append(out.Peers, p)
	}
	for _, s := range strangers {
		out.Strangers = append(out.Strangers, control.Stranger{
			Address: s.Addr, Packets: s.Packets, LastSeen: s.LastRx, Admit: tunnel.DropUnknownPeer.Admit(),
		})
	}
	return out
}

// refused reports whether a record is not used at an address of its own.
func refused(found []routing.Reached, a netip.Addr) bool {
	skipped := false
	for _, w := range found {
		if w.Via == a && w.How != routing.HowSkipped {
			return false
		}
		skipped = skipped || w.Via == a
	}
	return skipped
}

// peer returns the peer as its record alone describes it.
func peer(r lease.Record) control.Peer {
	p := control.Peer{Name: r.Called(), NodeID: r.Node(), Weft: r.Weft != nil, Address: r.Address(), Expires: r.Expires}
	if r.Weft != nil {
		p.Recv = r.Weft.Recv
	}
	for _, s := range []netip.Prefix{r.V4, r.V6} {
		if s.IsValid() {
			p.Subnets = append(p.Subnets, s)
		}
	}
	return p
}

// reached converts how a peer's subnets are reached.
func reached(rs []routing.Reached) []control.Reached {
	var out []control.Reached
	for _, r := range rs {
		out = append(out, control.Reached{Subnet: r.Subnet, How: r.How.String(), Via: r.Via, Reason: r.Reason})
	}
	return out
}

// fill adds what the data plane knows, for each of the peer's outer addresses that it sends to.
func fill(p *control.Peer, s tunnel.PeerStats) {
	if p.MTU == 0 { // the first
		p.Address, p.MTU = s.Addr, s.MTU
	}
	if p.Traffic == nil {
		p.Traffic = &control.Traffic{}
	}
	p.MTU = min(p.MTU, s.MTU)
	if s.PathMTU > 0 && (p.PathMTU == 0 || s.PathMTU < p.PathMTU) {
		p.PathMTU = s.PathMTU
	}
	p.TxPackets, p.TxBytes = p.TxPackets+s.TxPackets, p.TxBytes+s.TxBytes
	p.RxPackets, p.RxBytes = p.RxPackets+s.RxPackets, p.RxBytes+s.RxBytes
	if s.LastRx.After(p.LastSeen) {
		p.LastSeen = s.LastRx
	}
	p.Drops = addDrops(p.Drops, drops(s.Drops))
	if u := s.Unreachable; u.Count > 0 && !u.Doubtful && (p.Unreachable == nil || u.Last.After(p.Unreachable.Last)) {
		p.Unreachable = &control.Unreachable{Says: u.Why.String(), By: u.By, Count: u.Count, Last: u.Last}
	}
}

// addDrops adds up the counts of the same reason.
func addDrops(a, b []control.Drop) []control.Drop {
	for _, d := range b {
		if i := slices.IndexFunc(a, func(e control.Drop) bool { return e.Reason == d.Reason }); i >= 0 {
			a[i].Packets += d.Packets
		} else {
			a = append(a, d)
		}
	}
	return a
}

// Leases implements control.Node. It answers from the last set, and so also while the
// store is away.
func (d *Daemon) Leases(context.Context) (control.Leases, error) {
	out := control.Leases{Source: "weftd", Leases: []control.Record{}}
	g, waiting := d.current()
	if g == nil {
		return out, errors.New("nothing is known yet: " + waiting)
	}
	st := g.member.Status()
	out.Network = records.Network(g.footing.network)
	if st.Own.Subnets != (lease.Subnets{}) {
		out.Leases = append(out.Leases, records.From(st.Own, true))
	}
	for _, r := range g.peers() {
		out.Leases = append(out.Leases, records.From(r, false))
	}
	slices.SortFunc(out.Leases, func(a, b control.Record) int {
		return lease.Subnets{V4: a.Subnet, V6: a.IPv6Subnet}.Compare(lease.Subnets{V4: b.Subnet, V6: b.IPv6Subnet})
	})
	out.Rejected = records.Rejections(st.Rejected)
	return out, nil
}

// Release implements control.Node.
func (d *Daemon) Release(ctx context.Context, req control.ReleaseRequest) (control.Released, error) {
	self := d.identity()
	if g, _ := d.current(); g != nil && g.member.Status().State == lease.Waiting {
		self = "" // a record with our identity is another node's
	}
	done, err := d.source.release(ctx, req, self)
	if err == nil {
		d.log.Info("lease released on request", "event", events.LeaseReleased, "subnet", req.Subnet, "node", done.Record.Node, "name", done.Record.Name, "force", req.Force)
	}
	return done, err
}

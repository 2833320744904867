package daemon

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/internal/records"
	"weft/cmd/weftd/internal/verdict"
	"weft/lease"
)

// Snapshot reads what there is to know of this node, and changes nothing.
func (d *Daemon) Snapshot(parts control.Parts) *control.Snapshot {
	g, waiting := d.current()
	return d.snapshotOf(g, waiting, parts)
}

// snapshotOf is Snapshot with what current has returned.
func (d *Daemon) snapshotOf(g *overlay, waiting string, parts control.Parts) *control.Snapshot {
	source := d.source.info()
	s := &control.Snapshot{
		At: time.Now(), Version: d.process.version, NodeID: d.identity(), Started: d.process.started,
		Waiting: waiting,
		Source:  control.Source{Name: source.name, Where: source.where, Assigns: !source.allocates},
		Lease:   d.standing.read().heard, Cache: control.Cache{File: d.cacheFile()},
		Custody: d.custodyStatus(), Missing: d.degraded.notes(), Certificates: d.certificatesNow(),
	}
	if g != nil {
		d.readOverlay(s, g, parts)
	}
	s.Name, s.Store = d.called(s.Lease.Own), storeStatus(s.Lease, source.store)
	if parts.Has(control.PartTraffic) {
		if info, err := os.Stat(s.Cache.File); err == nil {
			s.Cache.SavedAt = info.ModTime()
		}
		s.Namespace, s.Pods = d.namespaceStatus(), d.podCounts()
	}
	if parts.Has(control.PartPods) && d.pods != nil {
		s.EachPod = d.pods.List().Pods
	}
	return s
}

// readOverlay adds what g knows.
func (d *Daemon) readOverlay(s *control.Snapshot, g *overlay, parts control.Parts) {
	s.Lease, s.Backend, s.RecordType = g.member.Status(), g.backend.Status(), g.backend.RecordType()
	s.Cache.Used, s.Port = g.cached, int(g.network.config.Facts().Port)
	s.NeedsRules = d.cfg.Rules.IPMasq || s.Backend.Encrypt != ""
	g.mu.Lock()
	s.Set, s.SubnetFile, s.StoreCut, s.Former, s.Compared = g.set, g.fileWhy, g.storeCut, g.formerWhy,
		g.config.compared
	view := g.config.view
	g.mu.Unlock()
	s.Set.Rejected = s.Lease.Rejected
	s.Config = configStatus(g.network.config, view)
	if g.prober != nil {
		s.Probing, s.Alone, s.ProbeFaults = true, g.prober.Alone(), g.prober.Faults()
		if s.Alone || parts != 0 {
			s.Probes = g.prober.States()
		}
	}
	if parts.Has(control.PartPeers) {
		s.Records, s.Encrypted = g.peers(), g.encryption(s.At)
	}
	if parts.Has(control.PartTraffic) {
		s.Devices = s.Backend.Traffic()
	}
	if g.plane == nil || parts&(control.PartTraffic|control.PartPeers) == 0 {
		return
	}
	engine := g.plane.Engine()
	s.Plane = &control.Plane{Strangers: engine.Strangers()}
	if parts.Has(control.PartTraffic) {
		s.Plane.Stats, s.Plane.Workers, s.Plane.Forgers = engine.Stats(), engine.Workers(), engine.Forgers()
		if n, err := g.plane.DeviceDrops(); err == nil { // the device may be gone just now
			s.Plane.Dropped = n
		}
	}
	if parts.Has(control.PartPeers) {
		s.Plane.Peers = engine.Peers()
	}
}

// services are what the control socket's server calls.
func (d *Daemon) services() control.Server {
	return control.Server{
		Pages: d, Leases: d, Pods: d, Probes: d, Captures: &captures{current: d.current}, Settings: d, Keys: d,
		Upgrades: d,
	}
}

// Status implements control.Pages.
func (d *Daemon) Status() control.Status {
	s := d.Snapshot(control.PartTraffic)
	return s.Status(verdict.Reasons(s), verdict.Notes(s))
}

// Peers implements control.Pages.
func (d *Daemon) Peers() control.Peers { return d.Snapshot(control.PartPeers).Peers() }

// storeStatus adds to s when the store answered last, and its error.
func storeStatus(st lease.Status, s control.Store) control.Store {
	s.Connected, s.LastSeen = st.StoreErr == nil && !st.StoreSeen.IsZero(), st.StoreSeen
	s.ClusterID, s.Revision, s.Took = st.ClusterID, st.Revision, st.StoreTook
	if st.StoreErr != nil {
		s.Refuses, s.FailingSince = st.StoreRefuses, st.StoreSince
		s.Error = st.StoreErr.Error()
	}
	return s
}

// Leases implements control.LeaseService. It answers from the last set, and so also while the
// store is away.
func (d *Daemon) Leases(context.Context) (control.Leases, error) {
	out := control.Leases{Source: "weftd", Leases: []control.Record{}}
	g, waiting := d.current()
	if g == nil {
		return out, errors.New("nothing is known yet: " + waiting)
	}
	st := g.member.Status()
	out.Network = records.Network(g.network.config.NetworkConfig)
	if st.Own.Subnets != (lease.Subnets{}) {
		out.Leases = append(out.Leases, records.From(st.Own, true))
	}
	for _, r := range g.peers() {
		out.Leases = append(out.Leases, records.From(r, false))
	}
	slices.SortFunc(out.Leases, func(a, b control.Record) int {
		return lease.Subnets{V4: a.Subnet, V6: a.IPv6Subnet}.Compare(lease.Subnets{V4: b.Subnet, V6: b.IPv6Subnet})
	})
	out.Rejected = st.Rejected
	return out, nil
}

// Release implements control.LeaseService.
func (d *Daemon) Release(ctx context.Context, req control.ReleaseRequest) (control.Released, error) {
	self := d.identity()
	if g, _ := d.current(); g != nil && g.member.Status().State == lease.Waiting {
		self = "" // a record with our identity is another node's
	}
	done, err := d.source.release(ctx, req, self)
	if err == nil {
		d.log.Info("lease released on request", "event", events.LeaseReleased, "subnet", req.Subnet, "node",
			done.Record.Node, "name", done.Record.Name, "force", req.Force)
	}
	return done, err
}

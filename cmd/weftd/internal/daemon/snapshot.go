package daemon

import (
	"os"
	"time"

	"weft/cmd/internal/control"
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

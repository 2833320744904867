package daemon

import (
	"os"
	"time"

	"weft/cmd/internal/podport"
	"weft/cmd/weftd/internal/ops"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
)

// snapshot returns the values from which the metrics are made.
func (d *Daemon) snapshot() ops.Snapshot {
	s := ops.Snapshot{Version: d.version, Node: d.identity(), Ready: len(d.Reasons()) == 0, Summary: !d.cfg.MetricsPerPeer}
	if info, err := os.Stat(d.cacheFile()); err == nil {
		s.CacheSaved = info.ModTime()
	}
	if d.pods != nil {
		t := d.pods.Totals()
		s.Pods = ops.Pods{
			Attached: t.Attached, Waiting: t.Waiting, Missing: t.Missing, SentPackets: t.SentPackets, SentBytes: t.SentBytes,
			ReceivedPackets: t.ReceivedPackets, ReceivedBytes: t.ReceivedBytes, Refused: t.Refused,
		}
		if d.cfg.MetricsPerPod {
			s.EachPod = podInterfaces(d.pods.List())
		}
	}
	g, _ := d.current()
	if g == nil {
		st := d.heardAtStart()
		s.StoreUp, s.StoreSeen = st.StoreErr == nil && !st.StoreSeen.IsZero(), st.StoreSeen
		return s
	}
	st := g.member.Status()
	s.LeaseHeld, s.LeaseExpires = st.State == lease.Held, st.Own.Expires
	s.StoreUp, s.StoreSeen, s.StoreRevision = st.StoreErr == nil && !st.StoreSeen.IsZero(), st.StoreSeen, st.Revision
	c := g.configNow().view
	s.ConfigChanged, s.ConfigFault, s.ConfigLastGood = c.text() != configView{}.text(), c.Fault != nil, c.LastGood
	_, s.NoPeer = d.noPeerNow()
	s.Alarm, s.Rejected = st.Alarm != "", st.RejectedCount()
	s.Backend = g.backend.Status()
	s.Rules = s.Backend.Rules
	s.KernelMoves, s.Devices = routing.CarriesNothing(s.Backend.Path), s.Backend.Traffic()
	s.Probes = g.probes()
	if !s.Summary {
		s.Infos, s.Encrypted = g.peerInfos(), g.encryptedPeers(time.Now())
	}
	if g.plane == nil {
		return s
	}
	engine := g.plane.Engine()
	s.Tunnel, s.Workers, s.Peers, s.Strangers = engine.Stats(), engine.Workers(), d.peerStats(engine), len(engine.Strangers())
	if n, err := g.plane.DeviceDrops(); err == nil { // the device may be gone just now
		s.DeviceDropped = n
	}
	return s
}

// peerStats returns the counters of each peer, nil if the metrics shall not have them.
func (d *Daemon) peerStats(e *tunnel.Engine) []tunnel.PeerStats {
	if !d.cfg.MetricsPerPeer {
		return nil
	}
	return e.Peers()
}

// podInterfaces are pods as the metrics have them.
func podInterfaces(all podport.Pods) []ops.PodInterface {
	out := make([]ops.PodInterface, 0, len(all.Pods))
	for _, p := range all.Pods {
		i := ops.PodInterface{
			Name: p.Name, ID: p.ID, Interface: p.Interface, By: p.By, Addresses: p.Addresses, Attached: p.State == podport.Attached,
			SentPackets: p.SentPackets, SentBytes: p.SentBytes, ReceivedPackets: p.ReceivedPackets, ReceivedBytes: p.ReceivedBytes,
		}
		for _, d := range p.Drops {
			i.Refused += d.Packets
		}
		out = append(out, i)
	}
	return out
}

package daemon

import (
	"context"
	"errors"
	"slices"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/internal/records"
	"weft/cmd/weftd/internal/verdict"
	"weft/lease"
)

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

// Package records lists and releases the records of a store, in the same words whether
// weftd does it, or weft itself because no daemon runs.
package records

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
)

// From converts a record; own says that it is the asking node's.
func From(r lease.Record, own bool) control.Record {
	node := r.Node()
	if r.Kube != nil {
		node = r.Kube.Name
	}
	return control.Record{
		Subnet: r.V4, IPv6Subnet: r.V6,
		PublicIP: r.PublicIP, PublicIPv6: r.PublicIPv6,
		Node: node, Name: r.Name(), Backend: lease.BackendName(r.BackendType),
		Own: own, Reservation: r.Reservation, Expires: r.Expires, Revision: r.Revision,
	}
}

// List reads every record from the store, with the time that it has left if the store
// says so. A record is rejected only if it does not parse: whether it conflicts with
// another, only a node that has accepted records can say.
func List(ctx context.Context, s lease.Store, source string) (control.Leases, error) {
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return control.Leases{}, fmt.Errorf("list leases: %w", err)
	}
	out := control.Leases{Source: source, Leases: []control.Record{}, Rejected: snap.Bad}
	if cfg, err := lease.ParseNetworkConfig(snap.Config); err == nil {
		out.Network = Network(cfg)
	}
	for _, r := range snap.Records {
		r := *r
		fillExpiry(ctx, s, &r)
		out.Leases = append(out.Leases, From(r, false))
	}
	return out, nil
}

// Network is the overlay's address space, both families.
func Network(cfg lease.NetworkConfig) string {
	return lease.Subnets{V4: cfg.Network, V6: cfg.IPv6Network}.String()
}

// fillExpiry asks the store how long r has left. If the record is gone meanwhile, r keeps
// what was known.
func fillExpiry(ctx context.Context, s lease.Store, r *lease.Record) {
	if !r.Expires.IsZero() || r.Reservation {
		return
	}
	switch left, err := s.Remaining(ctx, r.Subnets); {
	case err != nil:
	case left == 0:
		r.Reservation = true
	default:
		r.Expires = time.Now().Add(left)
	}
}

// ClusterOwned says why no record is deleted in a cluster that assigns the subnets.
const ClusterOwned = "a Kubernetes cluster gives out the subnets: a node's is its podCIDR, and is free " +
	"when the Node object is gone (kubectl delete node NODE)"

// Release deletes the record of req.Subnet if it is still as it was read. refuse
// may object to the record, which req.Force overrules. The error wraps
// control.ErrNotFound or control.ErrRefused if that is the reason.
func Release(ctx context.Context, s lease.Store, req control.ReleaseRequest,
	refuse func(lease.Record) error) (control.Released, error) {
	want, err := lease.ParseSubnets(req.Subnet)
	if err != nil {
		return control.Released{}, err
	}
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return control.Released{}, fmt.Errorf("release %s: %w", want, err)
	}
	r, ok := find(snap.Records, want)
	if !ok {
		return control.Released{}, fmt.Errorf("record %s: %w in the store (see weft lease list)", want,
			control.ErrNotFound)
	}
	if err := refuse(r); err != nil && !req.Force {
		return control.Released{}, fmt.Errorf("%s: %w: %w", r.Subnets, control.ErrRefused, err)
	}
	fillExpiry(ctx, s, &r)
	switch err := s.Delete(ctx, r.Subnets, r.Revision); {
	case errors.Is(err, lease.ErrConflict):
		return control.Released{}, fmt.Errorf("%s: %w: its owner has just renewed it, so it is alive", r.Subnets,
			control.ErrRefused)
	case err != nil:
		return control.Released{}, fmt.Errorf("release %s: %w", r.Subnets, err)
	}
	return control.Released{Record: From(r, false)}, nil
}

// find returns the record with exactly the subnets in want. If want has one family only, a record of both
// families is found by that one.
func find(records []*lease.Record, want lease.Subnets) (lease.Record, bool) {
	for _, r := range records {
		if r.Subnets == want || !want.V6.IsValid() && r.V4 == want.V4 || !want.V4.IsValid() && r.V6 == want.V6 {
			return *r, true
		}
	}
	return lease.Record{}, false
}

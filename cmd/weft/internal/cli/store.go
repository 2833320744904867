package cli

import (
	"context"
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/internal/records"
	"weft/lease"
	"weft/lease/etcd"
)

// direct answers from the store itself, without a daemon.
type direct struct {
	store  lease.Store
	source string
}

// openStore connects to etcd at the first request. done closes it.
func openStore(c etcd.Config, warn func(string)) (api direct, done func(), err error) {
	warnings, err := c.Check()
	for _, w := range warnings {
		warn(w)
	}
	if err != nil {
		return direct{}, nil, err
	}
	s, err := etcd.New(c)
	if err != nil {
		return direct{}, nil, err
	}
	source := fmt.Sprintf("etcd at %s, prefix %s", strings.Join(s.Endpoints(), " "), c.Prefix)
	// nothing was written that a close could lose
	return direct{store: s, source: source}, func() { _ = s.Close() }, nil
}

func (d direct) Leases(ctx context.Context) (control.Leases, error) {
	l, err := records.List(ctx, d.store, d.source)
	if err != nil {
		return l, fmt.Errorf("%s: %w", d.source, err)
	}
	return l, nil
}

// Release refuses no record as the daemon's own, since no daemon runs here that could use it.
func (d direct) Release(ctx context.Context, r control.ReleaseRequest) (control.Released, error) {
	return records.Release(ctx, d.store, r, func(lease.Record) error { return nil })
}

package main

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/delegate"
)

// status says whether an ADD could succeed. It does not fail because weftd does not answer or
// is not ready, as long as there is a subnet file: packets flow without weftd, or will again,
// and a runtime to which STATUS fails removes the node's pods. Without weftd nobody is attached directly.
func (p plugin) status(args *skel.CmdArgs) error {
	ctx := context.Background()
	r, err := p.request(args)
	if err != nil {
		return err
	}
	env, err := r.env(ctx, errNotAvailable)
	if err != nil {
		return err
	}
	d, err := r.Render(env)
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	for _, name := range []string{d.Type, d.IPAMType} {
		if _, err := r.delegate.Find(name); err != nil {
			return types.NewError(errNotAvailable, err.Error(), "")
		}
	}
	if err := r.delegate.Status(ctx, d); err != nil && !errors.Is(err, delegate.ErrUnsupported) {
		var e *types.Error
		if errors.As(err, &e) {
			return e
		}
		return types.NewError(errNotAvailable, err.Error(), "")
	}
	if direct, ok := d.Direct(); ok {
		return r.statusDirectly(ctx, direct)
	}
	return nil
}

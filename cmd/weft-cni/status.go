package main

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/delegate"
)

// status says whether an ADD could succeed. That weftd does not answer or is not ready is
// no reason why not, as long as it has left a subnet: packets flow without it, or will
// again, and a runtime that is told otherwise takes the node's pods away.
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
	return nil
}

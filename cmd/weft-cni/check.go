package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/netconf"
)

// check asks the delegate whether the attachment is as ADD left it. It checks itself what the
// delegate cannot know: whether DEL could undo the attachment, and whether the node still has its
// subnet.
func (p plugin) check(args *skel.CmdArgs) error {
	ctx := context.Background()
	r, err := p.request(args)
	if err != nil {
		return err
	}
	if len(r.PrevResult) == 0 {
		return types.NewError(types.ErrInvalidNetworkConfig, "CHECK without prevResult, the result of ADD", "")
	}
	rec, err := r.dir.Load(r.id)
	if errors.Is(err, fs.ErrNotExist) {
		return types.NewError(types.ErrInternal,
			fmt.Sprintf("nothing is known of %s: it was not attached, or its file in %s is lost", r.id, r.DataDir), "")
	}
	if err != nil {
		return stateFault(err)
	}
	d, err := netconf.ParseDelegate(rec.Text)
	if err != nil {
		return types.NewError(types.ErrInternal, rec.Path+": "+err.Error(), "")
	}
	if d.Name != r.Name {
		return types.NewError(types.ErrInternal, fmt.Sprintf("%s belongs to network %s", r.id, d.Name), "")
	}
	if err := r.delegate.Check(ctx, r.today(d), r.call); err != nil {
		return by(d.Type, err)
	}
	if direct, ok := d.Direct(); ok {
		if err := r.checkDirectly(ctx, direct); err != nil {
			return err
		}
	}
	env, err := r.env(ctx, types.ErrTryAgainLater)
	if err != nil {
		return nil // the node's trouble, which STATUS tells of, and not the attachment's
	}
	if old := d.Elsewhere(env); len(old) > 0 {
		return types.NewError(types.ErrInternal,
			fmt.Sprintf("%s has an address of %s, and the node's subnet is now %s: the container has to be made anew",
				r.id, old, env.Subnets), "")
	}
	return nil
}

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
	if err := r.delegate.Status(ctx, d); err != nil {
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

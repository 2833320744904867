package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/weft-cni/internal/attach"
	"weft/cmd/weft-cni/internal/netconf"
)

// del detaches a container, with the configuration that it was attached with. It needs
// subnet.env only if that configuration is lost.
func (p plugin) del(args *skel.CmdArgs) error {
	ctx := context.Background()
	r, err := p.request(args)
	if err != nil {
		return err
	}
	rec, err := r.dir.Load(r.id)
	if errors.Is(err, fs.ErrNotExist) {
		p.delUnknown(ctx, r)
		return nil
	}
	if err != nil {
		return stateFault(err)
	}
	d, err := netconf.ParseDelegate(rec.Text)
	switch {
	case err != nil:
		fmt.Fprintf(p.stderr, "weft-cni: %s: %v; using what the configuration says today\n", rec.Path, err)
		env, envErr := r.env(ctx, types.ErrTryAgainLater)
		if envErr != nil {
			return types.NewError(types.ErrTryAgainLater,
				fmt.Sprintf("%s cannot be read (%v), and without a subnet file there is no other way to detach", rec.Path,
					err), envErr.Error())
		}
		if d, err = r.Render(env); err != nil {
			return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
		}
	case d.Name != r.Name && rec.Flannel:
		// flannel's plugin overwrote this interface's with another's.
		p.delUnknown(ctx, r)
		return nil
	case d.Name != r.Name:
		return nil // another network's attachment, which a DEL would remove
	}
	if err := r.detach(ctx, r.today(d), r.call); err != nil {
		return by(d.Type, err)
	}
	if err := r.dir.Remove(rec); err != nil {
		return stateFault(err)
	}
	if env, err := r.env(ctx, types.ErrTryAgainLater); err == nil && len(d.Elsewhere(env)) > 0 {
		p.retireGateway(r, d, env)
	}
	return nil
}

// today returns d, which is that of an ADD, in the version of the runtime's configuration of now, which
// may have changed since; the result of ADD is converted to it.
func (r request) today(d netconf.Delegate) netconf.Delegate {
	return d.WithVersion(r.CNIVersion).WithPrevResult(r.PrevResult)
}

// delUnknown detaches an attachment that has no record: it was detached before, or never
// attached, or its record is lost. If it is lost, the delegate still finds what it made by the
// container's id and the interface's name. If the delegate fails, the runtime cannot help that,
// and GC removes what is left.
func (p plugin) delUnknown(ctx context.Context, r request) {
	env, err := r.env(ctx, types.ErrTryAgainLater)
	if err != nil {
		return
	}
	d, err := r.Render(env)
	if err == nil && r.isAnothers(d) {
		return // it is the reason why this network's ADD was refused
	}
	if err == nil {
		err = r.detach(ctx, d, r.call)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "weft-cni: nothing is known of %s, and %s cannot detach it: %v\n", r.id, d.Type, err)
	}
}

// isAnothers reports whether host-local holds an address for the attachment in another network, and none in
// this one. A delegate finds an attachment by the interface's name alone, and would remove the other
// network's.
func (r request) isAnothers(d netconf.Delegate) bool {
	dir, err := reservations(d)
	if err != nil || d.IPAMType != hostlocal.Plugin {
		return false
	}
	networks, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	another := false
	for _, n := range networks {
		holders, _ := hostlocal.Holders(dir, n.Name()) // a directory that is no network of host-local has none
		if !slices.ContainsFunc(holders, func(h hostlocal.Holder) bool {
			return call(attach.ID{Container: h.Container, Interface: h.Interface}) == call(r.id)
		}) {
			continue
		}
		if n.Name() == r.Name {
			return false
		}
		another = true
	}
	return another
}

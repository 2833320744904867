package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/weft-cni/internal/attach"
	"weft/cmd/weft-cni/internal/delegate"
	"weft/cmd/weft-cni/internal/gateway"
	"weft/cmd/weft-cni/internal/netconf"
	"weft/cmd/weft-cni/internal/podlink"
	"weft/encap"
)

// add attaches a container. It saves how to undo the attachment before it begins.
func (p plugin) add(args *skel.CmdArgs) error {
	ctx := context.Background()
	r, err := p.request(args)
	if err != nil {
		return err
	}
	env, err := r.env(ctx, types.ErrTryAgainLater)
	if err != nil {
		return err
	}
	if err := notOwnNamespace(args); err != nil {
		return err
	}
	d, err := r.Render(env)
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	if _, err := r.delegate.Find(d.Type); err != nil {
		return err // before there is anything to undo, which could not be done either
	}
	if err := r.listens(ctx, d); err != nil {
		return err
	}
	before, err := r.before()
	if err != nil {
		return err
	}
	if err := r.unattached(d); err != nil {
		return err
	}
	if err := r.dir.Save(r.id, d.WithPrevResult(nil).Text()); err != nil {
		return stateFault(err)
	}
	if err := p.addGateway(r, d, env); err != nil {
		p.undo(ctx, r, d, before)
		return err
	}
	result, err := r.attach(ctx, d, env)
	if err == nil {
		err = r.limitGSO(ctx, env.MTU)
	}
	if err != nil {
		p.undo(ctx, r, d, before)
		return err
	}
	if err := result.PrintTo(p.stdout); err != nil {
		return types.NewError(types.ErrIOFailure, "print the result: "+err.Error(), "")
	}
	return nil
}

// attach has the delegate make the interface, or makes one that is a port of weftd's.
func (r request) attach(ctx context.Context, d netconf.Delegate, env netconf.Env) (types.Result, error) {
	result, err := r.delegate.Add(ctx, d, r.call)
	if err != nil {
		return nil, by(d.Type, err)
	}
	if direct, ok := d.Direct(); ok {
		return r.attachDirectly(ctx, direct, result, env)
	}
	return result, nil
}

// detach undoes attach.
func (r request) detach(ctx context.Context, d netconf.Delegate, call delegate.Call) error {
	if direct, ok := d.Direct(); ok {
		r.detachDirectly(ctx, direct, call)
	}
	return r.delegate.Del(ctx, d, call)
}

// notOwnNamespace refuses the plugin's own namespace, so that the delegate does not give the host a
// pod's address. The library checks that only after the ADD.
func notOwnNamespace(args *skel.CmdArgs) error {
	if o := strings.ToUpper(args.NetnsOverride); o == "TRUE" || o == "1" {
		return nil
	}
	own, fault := ns.CheckNetNS(args.Netns)
	if fault != nil {
		return fault
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the plugin's own network namespace: "+args.Netns,
			"")
	}
	return nil
}

// before returns the record of an earlier ADD of this attachment, nil if there is none. There is one
// if this is a second ADD, or if the DEL of an earlier attachment never came.
func (r request) before() (*attach.Record, error) {
	rec, err := r.dir.Load(r.id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, stateFault(err)
	case rec.Flannel:
		return nil, nil // perhaps of another interface; it stays as it is
	}
	if d, err := netconf.ParseDelegate(rec.Text); err == nil && d.Name != r.Name {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("%s belongs to network %s: it has to leave that first", r.id, d.Name), "")
	}
	return &rec, nil
}

// unattached refuses an attachment that is there already, before the delegate would. That the delegate
// refuses it is not enough: the record of the first ADD may be lost. Undoing the second, which has the same
// container and interface, would then undo the first: a running pod would lose its interface, and its address
// would be given to another.
func (r request) unattached(d netconf.Delegate) error {
	there, err := podlink.Exists(r.call.NetNS, r.call.IfName)
	if err != nil {
		return types.NewError(types.ErrInvalidNetNS, err.Error(), "")
	}
	if there {
		return types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("%s is there already: it has to be deleted first", r.id), "")
	}
	if d.IPAMType != hostlocal.Plugin {
		return nil
	}
	dir, err := reservations(d)
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	holders, err := hostlocal.Holders(dir, r.Name)
	if err != nil {
		fmt.Fprintf(r.stderr, "weft-cni: reservations of host-local: %v\n", err) // and host-local decides
	}
	for _, h := range holders {
		if call(attach.ID{Container: h.Container, Interface: h.Interface}) == call(r.id) {
			return types.NewError(types.ErrInvalidNetworkConfig,
				fmt.Sprintf("%s has an address of network %s already: it has to be deleted first", r.id, r.Name), "")
		}
	}
	return nil
}

// by adds the name of the plugin whose error it is, and keeps the error's code.
func by(plugin string, err error) error {
	var e *types.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	return types.NewError(e.Code, plugin+": "+e.Msg, e.Details)
}

// undo takes back an ADD that failed.
//
// If this was a second ADD, the first attachment may be in use, and a DEL would remove its interface and its
// address. So it is left as it was. The second ADD's work has the same container and interface, so the first
// one's DEL removes it.
func (p plugin) undo(ctx context.Context, r request, d netconf.Delegate, before *attach.Record) {
	var err error
	if before != nil {
		err = r.dir.Save(r.id, before.Text)
	} else if err = r.detach(ctx, d, r.call); err == nil {
		var rec attach.Record
		if rec, err = r.dir.Load(r.id); err == nil {
			err = r.dir.Remove(rec)
		}
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "weft-cni: clean up after ADD of %s: %v; DEL will\n", r.id, err)
	}
}

// limitGSO does what gsoMaxSize says. A stated limit that cannot be set is an error; auto
// is never one.
func (r request) limitGSO(ctx context.Context, mtu int) error {
	limit := r.GSOMaxSize.Bytes
	if r.GSOMaxSize.Auto {
		s, err := askDaemon(ctx, r.ControlSocket, askTimeout)
		if err != nil {
			return nil
		}
		limit = suitableGSO(s.Backend, mtu)
	}
	if limit == 0 {
		return nil
	}
	err := podlink.LimitGSO(r.call.NetNS, r.call.IfName, limit)
	if err == nil || r.GSOMaxSize.Auto {
		return nil
	}
	return fmt.Errorf("gsoMaxSize: %w", err)
}

// suitableGSO returns the limit with which a superpacket fits one send of weftd. It is 0 where the
// kernel's default is as good: for backends that the kernel carries, and for the path that has no
// superpackets. The names of backends and paths are those that the control socket uses. To take them
// from tunnel and routing would make the plugin, which starts for each pod, 8 % larger;
// TestNamesAgree keeps them the same.
func suitableGSO(b backend, mtu int) int {
	if b.Path != "socket" && b.Path != "raw" {
		return 0
	}
	format := encap.FormatVXLAN
	switch b.Type {
	case "udp":
		format = encap.FormatIP
	case "ipip":
		format = encap.FormatIPIP
	}
	return encap.GSOMaxSize(format, mtu)
}

// stateFault wraps an error of the state's directory.
func stateFault(err error) error {
	var e *types.Error
	if errors.As(err, &e) {
		return e
	}
	return types.NewError(types.ErrIOFailure, "state of the attachment: "+err.Error(), "")
}

// addGateway gives the bridge the gateway of the node's subnet if it has that of a former one, so
// that plugin bridge accepts pods of the new subnet.
func (p plugin) addGateway(r request, d netconf.Delegate, env netconf.Env) error {
	if d.Bridge() == "" || d.IPAMType != hostlocal.Plugin {
		return nil
	}
	p.retireGateway(r, d, env)
	if err := (gateway.Node{Networks: env.Networks, Subnets: env.Subnets}).Add(d.Bridge()); err != nil {
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	return nil
}

// retireGateway removes the gateway of a former subnet once the last pod of that is gone. A failure
// does no harm, since the next ADD tries again.
func (p plugin) retireGateway(r request, d netconf.Delegate, env netconf.Env) {
	if d.Bridge() == "" || d.IPAMType != hostlocal.Plugin {
		return
	}
	dir, err := reservations(d)
	if err == nil {
		err = gateway.Node{Networks: env.Networks, Subnets: env.Subnets}.Retire(d.Bridge(),
			func(subnet netip.Prefix) bool {
				return hostlocal.InUse(dir, r.Name, subnet)
			})
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "weft-cni: %v\n", err)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/ask"
	"weft/cmd/weft-cni/internal/attach"
	"weft/cmd/weft-cni/internal/hostlocal"
	"weft/cmd/weft-cni/internal/netconf"
	"weft/cmd/weft-cni/internal/podlink"
	"weft/encap"
)

// add attaches a container. What is needed to undo it is on disk before anything is done.
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
	result, err := r.delegate.Add(ctx, d, r.call)
	if err != nil {
		err = by(d.Type, err)
	} else {
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

// notOwnNamespace keeps the delegate from giving the host a pod's address. The library looks
// only when all is done.
func notOwnNamespace(args *skel.CmdArgs) error {
	if o := strings.ToUpper(args.NetnsOverride); o == "TRUE" || o == "1" {
		return nil
	}
	own, fault := ns.CheckNetNS(args.Netns)
	if fault != nil {
		return fault
	}
	if own {
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS is the plugin's own network namespace: "+args.Netns, "")
	}
	return nil
}

// before is what was known of the attachment already, nil if nothing: a second ADD, or one
// whose DEL never came.
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

// unattached refuses an attachment that is there already, as its delegate would. To be refused by that
// is not enough: what is known of the first may be lost, and then undoing the second is undoing the
// first, under whose name it goes, with the interface of a pod that runs and an address that somebody else is given next.
func (r request) unattached(d netconf.Delegate) error {
	there, err := podlink.Exists(r.call.NetNS, r.call.IfName)
	if err != nil {
		return types.NewError(types.ErrInvalidNetNS, err.Error(), "")
	}
	if there {
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s is there already: it has to be deleted first", r.id), "")
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

// by says whose error it is, and keeps its code.
func by(plugin string, err error) error {
	var e *types.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	return types.NewError(e.Code, plugin+": "+e.Msg, e.Details)
}

// undo takes back an ADD that failed.
//
// After a second ADD, the first may be in use, with the interface and the address that
// a DEL would take away. It is left as it was; what the second made beside it is under the
// same name and goes with its DEL.
func (p plugin) undo(ctx context.Context, r request, d netconf.Delegate, before *attach.Record) {
	var err error
	if before != nil {
		err = r.dir.Save(r.id, before.Text)
	} else if err = r.delegate.Del(ctx, d, r.call); err == nil {
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
		s, err := ask.Daemon(ctx, r.ControlSocket, askTimeout)
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

// suitableGSO is the limit with which a superpacket fits one send of weftd, 0 where the
// kernel's default is as good: its own backends, and the path that has no superpackets. The words are the
// control socket's: to ask tunnel and routing for them would make the plugin, which starts for each pod, 8 % longer.
func suitableGSO(b ask.Backend, mtu int) int {
	if b.Path != "socket" && b.Path != "raw" {
		return 0
	}
	format := encap.FormatIP
	if b.Type != "udp" {
		format = encap.FormatVXLAN
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

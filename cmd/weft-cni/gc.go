package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/weft-cni/internal/attach"
	"weft/cmd/weft-cni/internal/delegate"
	"weft/cmd/weft-cni/internal/netconf"
)

// usualInterface is the name that runtimes give to a container's first interface. It is assumed
// for files that do not name one.
const usualInterface = "eth0"

// collection is one GC of one network.
type collection struct {
	request
	// current is the delegate's configuration of today. Its ipam has no ranges when
	// noEnv is not nil.
	current netconf.Delegate
	noEnv   error
	// valid are the attachments that exist, and containers their containers.
	valid      map[attach.ID]bool
	containers map[string]bool
	faults     []error
}

// gc removes what is left of attachments that are not among the valid ones. It takes three
// steps, each of which finds what the one before does not: it detaches the attachments that have
// a record, as DEL does; it releases reservations of host-local that no valid attachment has,
// since host-local itself does not; and it calls the delegate's GC. A step that fails does not
// stop the others. Other networks that use the same directory are left alone. Without a list of
// valid attachments nothing is done at all.
func (p plugin) gc(args *skel.CmdArgs) error {
	ctx := context.Background()
	r, err := p.request(args)
	if err != nil {
		return err
	}
	c := collection{request: r, valid: map[attach.ID]bool{}, containers: map[string]bool{}}
	if err := c.setValid(r.Valid); err != nil {
		return err
	}
	env, err := r.env(ctx, types.ErrTryAgainLater)
	if c.noEnv = err; err == nil {
		c.current, err = r.Render(env)
	} else {
		c.current, err = r.RenderStatus()
	}
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	c.detach(ctx)
	c.release(ctx)
	c.forward(ctx)
	if err := errors.Join(c.faults...); err != nil {
		// with all errors, of which the library would print the first
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	return nil
}

// setValid adopts the list of valid attachments. If there is none, or if one of its entries is no
// attachment, nobody knows which attachments exist. A GC that took that for an empty list would
// release the addresses of all running pods.
func (c *collection) setValid(valid []types.GCAttachment) error {
	if valid == nil {
		return types.NewError(types.ErrInvalidNetworkConfig,
			"GC without the list cni.dev/valid-attachments releases nothing: an empty list, [], says that no "+
				"attachment is valid", "")
	}
	for i, a := range valid {
		id := attach.ID{Container: a.ContainerID, Interface: a.IfName}
		if err := id.Check(); err != nil {
			return types.NewError(types.ErrInvalidNetworkConfig,
				fmt.Sprintf("GC releases nothing: cni.dev/valid-attachments[%d] is no attachment: %v", i, err), "")
		}
		c.valid[id] = true
		c.containers[id.Container] = true
	}
	return nil
}

func (c *collection) fault(what string, err error) {
	if err != nil {
		c.faults = append(c.faults, fmt.Errorf("%s: %w", what, err))
	}
}

// isValid reports whether an attachment exists. One without an interface is valid with any.
func (c *collection) isValid(id attach.ID) bool {
	return c.valid[id] || id.Interface == "" && c.containers[id.Container]
}

// detach calls the delegate's DEL for every stale attachment that has a record.
func (c *collection) detach(ctx context.Context) {
	records, err := c.dir.List()
	c.fault("list "+c.DataDir, err)
	for _, rec := range records {
		if c.isValid(rec.ID) {
			continue
		}
		d, err := netconf.ParseDelegate(rec.Text)
		switch {
		case err == nil && d.Name != c.Name:
			continue
		case err != nil && c.noEnv != nil:
			c.fault(rec.Path, errors.Join(err, c.noEnv))
			continue
		case err != nil:
			d = c.current // with it the delegate does not find another network's attachment, which so loses nothing
		}
		if err := c.request.detach(ctx, d.WithPrevResult(nil), call(rec.ID)); err != nil {
			c.fault("detach "+rec.ID.String(), err)
			continue
		}
		c.fault("forget "+rec.ID.String(), c.dir.Remove(rec))
	}
}

// release makes host-local release the addresses that no valid attachment has.
func (c *collection) release(ctx context.Context) {
	if c.current.IPAMType != hostlocal.Plugin {
		return
	}
	dir, err := reservations(c.current)
	if err != nil {
		c.fault("ipam", err)
		return
	}
	holders, err := hostlocal.Holders(dir, c.Name)
	c.fault("reservations of host-local", err)
	for _, h := range holders {
		id := attach.ID{Container: h.Container, Interface: h.Interface}
		if c.isValid(id) {
			continue
		}
		if c.noEnv != nil { // host-local refuses a configuration without ranges
			c.fault("addresses of "+id.String(), c.noEnv)
			return
		}
		c.fault("release the addresses of "+id.String(),
			c.delegate.Del(ctx, c.current.As(hostlocal.Plugin), call(id)))
	}
}

// reservations returns the directory in which d's host-local keeps who has which address.
func reservations(d netconf.Delegate) (dir string, err error) {
	var ipam struct {
		DataDir string `json:"dataDir"`
	}
	if err := json.Unmarshal(d.IPAM(), &ipam); err != nil {
		return "", err
	}
	if ipam.DataDir == "" {
		return hostlocal.DefaultDir, nil
	}
	return ipam.DataDir, nil
}

// forward calls the delegate's GC with the runtime's list.
func (c *collection) forward(ctx context.Context) {
	d := c.current.WithKey("cni.dev/valid-attachments", c.Valid).WithKey("cni.dev/attachments", c.Valid)
	c.fault("GC of "+d.Type, c.delegate.GC(ctx, d))
}

// call returns what the environment tells a plugin in the DEL of an attachment whose namespace is gone.
func call(id attach.ID) delegate.Call {
	if id.Interface == "" {
		id.Interface = usualInterface
	}
	return delegate.Call{ContainerID: id.Container, IfName: id.Interface}
}

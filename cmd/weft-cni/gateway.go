package main

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/weft-cni/internal/gateway"
	"weft/cmd/weft-cni/internal/hostlocal"
	"weft/cmd/weft-cni/internal/netconf"
)

// addGateway lets pods of the node's subnet onto a bridge that has the gateway of a former one.
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

// retireGateway takes the gateway of a former subnet away once its last pod is gone. That it could not
// keeps nobody from anything: the next ADD tries again.
func (p plugin) retireGateway(r request, d netconf.Delegate, env netconf.Env) {
	if d.Bridge() == "" || d.IPAMType != hostlocal.Plugin {
		return
	}
	dir, err := reservations(d)
	if err == nil {
		err = gateway.Node{Networks: env.Networks, Subnets: env.Subnets}.Retire(d.Bridge(), func(subnet netip.Prefix) bool {
			return hostlocal.InUse(dir, r.Name, subnet)
		})
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "weft-cni: %v\n", err)
	}
}

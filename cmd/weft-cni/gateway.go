package main

import (
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/weft-cni/internal/gateway"
	"weft/cmd/weft-cni/internal/netconf"
)

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

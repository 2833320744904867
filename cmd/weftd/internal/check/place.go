package check

import (
	"fmt"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/rootless"
	"weft/routing"
)

// place checks whether weftd would get to the network namespace of the TUN, by making one there for a moment,
// and whether the backend works between two namespaces.
func (r *report) place(cfg options.Config, network routing.Network) {
	where := "in a new network namespace"
	if to := cfg.Rootless.TUNNetns; to != "" {
		where = "in the network namespace of --tun-netns " + to
	}
	if err := rootless.Try(cfg); err != nil {
		r.fault(err)
	} else {
		r.remark("namespace: a TUN can be made %s", where)
	}
	if network.BackendType != "" {
		r.fault(network.WorksElsewhere())
	}
	if cfg.Rootless.On {
		if why := network.Facts().Privilege; why != "" {
			r.fault(fmt.Errorf("backend %s: %s", network.BackendType, why))
		}
		r.remark("without root: path raw, rx-udp-gro-forwarding and rules that guard the overlay's port are off")
		if line := rootless.ReceiveBuffer(); line != "" {
			r.remark("%s", line)
		}
		port := 0
		if network.BackendType != "" {
			port = int(network.Facts().Port)
		}
		for _, line := range rootless.Outside(port) {
			r.remark("%s", line)
		}
	}
}

package daemon

import (
	"net/netip"
	"os"

	"weft/cmd/weftd/internal/ops"
	"weft/lease"
)

// hostName returns what our record says that people call us: the operator's choice, else the host's name.
// weftd that runs in a container has the host's, too, if it shares the host's network, as it has to. In Kubernetes
// it is "", since the Node has a name.
func (d *Daemon) hostName() string {
	if d.cfg.Kube.On {
		return ""
	}
	if d.cfg.NodeName != "" {
		return d.cfg.NodeName
	}
	host, err := os.Hostname()
	name := lease.HostName(host)
	if name == "" {
		d.log.Info("this host's name does not tell it from others: the node is called by its id, or as --node-name says", "host", host, "reason", err)
	}
	return name
}

// called returns what people call this node; "" if it has no name, or that is not known yet.
func (d *Daemon) called() string {
	if !d.cfg.Kube.On {
		return d.name
	}
	if g, _ := d.current(); g != nil {
		if own := g.member.Status().Own; own.Kube != nil {
			return own.Name()
		}
	}
	return d.cfg.Kube.NodeName
}

// beside returns a node's name with its identity and address, for a sentence.
func beside(name, id string, address netip.Addr) string {
	switch {
	case id == "" || id == name:
		if !address.IsValid() {
			return name
		}
		return name + " (" + address.String() + ")"
	case !address.IsValid():
		return name + " (id " + id + ")"
	}
	return name + " (id " + id + ", " + address.String() + ")"
}

// peerInfos returns what the records say of the peers, for the metrics.
func (g *generation) peerInfos() []ops.PeerInfo {
	records := g.peers()
	out := make([]ops.PeerInfo, len(records))
	for i := range records {
		r := &records[i]
		out[i] = ops.PeerInfo{
			Name: r.Called(), ID: r.Node(), PublicIP: r.PublicIP, PublicIPv6: r.PublicIPv6,
			Subnets: r.Subnets.String(), Backend: lease.BackendName(r.BackendType),
		}
	}
	return out
}

package daemon

import (
	"os"

	"weft/lease"
)

// hostName returns what our record says that people call us: the operator's choice, else the host's name.
// weftd that runs in a container has the host's, too, if it shares the host's network, as it has to. In
// Kubernetes it is "", since the Node has a name.
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
		d.log.Info("this host's name does not tell it from others: the node is called by its id, or as "+
			"--node-name says", "host", host, "reason", err)
	}
	return name
}

// called returns what people call this node; "" if it has no name, or that is not known yet.
// own is our record as far as it is known.
func (d *Daemon) called(own lease.Record) string {
	switch {
	case !d.cfg.Kube.On:
		return d.self.name
	case own.Kube != nil:
		return own.Name()
	}
	return d.cfg.Kube.NodeName
}

package options

import (
	"fmt"
)

// Remarks lists settings that are allowed but perhaps not meant, for the log and for --check.
func (c Config) Remarks() []string {
	var out []string
	for _, s := range c.Settings {
		if s.Name == "etcd-password" && s.Source == "flag" {
			out = append(out, "--etcd-password on the command line can be read by everyone on this host: use "+
				"--etcd-password-file")
		}
	}
	switch listen := c.Embedded.Listen; {
	case !c.Embedded.On || !listen.IsValid() || c.Store.CertFile != "":
	case listen.Addr().IsLoopback():
		out = append(out, fmt.Sprintf("--embedded-etcd-listen %s: any local user can take any subnet and write "+
			"the network configuration; without this flag it is a Unix socket, for root alone", listen))
	default:
		out = append(out, fmt.Sprintf("--embedded-etcd-insecure: whoever reaches %s can take any subnet and "+
			"write the network configuration", listen))
	}
	out = append(out, c.kubeRemarks()...)
	if c.Kube.On && c.NodeName != "" {
		out = append(out, fmt.Sprintf("--node-name %s has no effect with --kube-subnet-mgr: a node is called as "+
			"its Node object", c.NodeName))
	}
	for _, name := range c.Unknown {
		out = append(out, fmt.Sprintf("environment variable %s names no flag: it is ignored", name))
	}
	return out
}

// MetricsElsewhere is the answer to a client on another host that asks for /metrics, unless weftd was told an
// address. By flannel's default the server is open to everybody, but flannel has no metrics there.
const MetricsElsewhere = "metrics are for this host alone, unless weftd is told an address by --healthz-ip " +
	"(0.0.0.0 for all)"

// healthzRemarks recommends an address for the health server where flannel's default is in use.
func (c Config) healthzRemarks() []string {
	if c.HealthzPort == 0 || c.HealthzIPGiven {
		return nil
	}
	return []string{fmt.Sprintf("--healthz-port %d is open on all addresses, as flannel's is (its /metrics "+
		"for this host alone): "+
		"--healthz-ip 127.0.0.1 is safer, if no probe comes by the node's address", c.HealthzPort)}
}

package options

import "fmt"

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

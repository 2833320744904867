package options

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
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

// validateKube checks whether the flags about Kubernetes fit together; kube.Config has the
// other rules. Flags about etcd are not checked.
func (c *Config) validateKube() []error {
	var faults []error
	if c.Kube.AnnotationPrefix == "" {
		c.Kube.AnnotationPrefix = defaults().Kube.AnnotationPrefix
	}
	if c.Embedded.On {
		faults = append(faults, errors.New("--kube-subnet-mgr and --embedded-etcd are both given: subnets come "+
			"from one of the two; leave one out"))
	}
	if c.NetConfigPath == "" {
		faults = append(faults, errors.New("--net-config-path is empty: with --kube-subnet-mgr, name the file "+
			"with the network configuration"))
	}
	if u, err := url.Parse(c.Kube.APIURL); err == nil && u.User != nil { // which logs and status would show
		faults = append(faults, errors.New("--kube-api-url has a user name in it: put credentials into a "+
			"kubeconfig and name it with --kubeconfig-file"))
	}
	return faults
}

// kubeRemarks lists the flags that were given and have no effect because subnets come from elsewhere.
func (c Config) kubeRemarks() []string {
	idle := func(name string) bool {
		own := strings.HasPrefix(name, "kube-") || name == "kubeconfig-file" ||
			name == "set-node-network-unavailable"
		if !c.Kube.On {
			return own
		}
		return strings.HasPrefix(name, "etcd-") || strings.HasPrefix(name, "embedded-etcd-") ||
			name == "subnet-lease-renew-margin"
	}
	because := "without --kube-subnet-mgr"
	if c.Kube.On {
		because = "with --kube-subnet-mgr"
	}
	var out []string
	for _, s := range c.Settings {
		source := c.sources[s.Name]
		if source == "" || s.Name == "kube-subnet-mgr" || !idle(s.Name) {
			continue
		}
		name := "--" + s.Name
		if variable, ok := strings.CutPrefix(source, "env "); ok {
			name += " (" + variable + ")"
		}
		out = append(out, fmt.Sprintf("%s has no effect %s", name, because))
	}
	return out
}

// Quiet lists remarks that deserve only a debug message, or a line of --check.
func (c Config) Quiet() []string {
	out := c.healthzRemarks()
	for _, name := range c.Unused {
		out = append(out, fmt.Sprintf("environment variable %s is flannel's and has no effect: no event is lost "+
			"here, and a start does not wait for the API server", name))
	}
	return out
}

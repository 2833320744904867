package options

import "fmt"

// MetricsElsewhere is what a client of another host is told that asks for /metrics, as long as no address
// was given: that the server is open to all is flannel's default, and flannel has no metrics there.
const MetricsElsewhere = "metrics are for this host alone, unless weftd is told an address by --healthz-ip (0.0.0.0 for all)"

// healthzRemarks recommends what flannel's default is not.
func (c Config) healthzRemarks() []string {
	if c.HealthzPort == 0 || c.HealthzIPGiven {
		return nil
	}
	return []string{fmt.Sprintf("--healthz-port %d is open on all addresses, as flannel's is (its /metrics for this host alone): "+
		"--healthz-ip 127.0.0.1 is safer, if no probe comes by the node's address", c.HealthzPort)}
}

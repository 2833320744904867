package options

import "fmt"

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

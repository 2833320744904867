package sim

import (
	"weft/lease"
	"weft/routing"
)

// configs are the network configurations that a script may name. The first goodConfigs can follow each other
// in a running network; then come one in which no node's subnet is, and one that is none. The ranges are
// small, so that nodes meet.
var configs = [...]string{
	`{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.12.0"}`,
	`{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.12.0","EnableIPv6":true,"IPv6Network":"fd00:244::/48","IPv6SubnetMin":"fd00:244:0:1::","IPv6SubnetMax":"fd00:244:0:c::"}`,
	`{"Network":"10.244.0.0/16","SubnetMin":"10.244.1.0","SubnetMax":"10.244.12.0","Backend":{"Type":"udp","Port":8286}}`,
	`{"Network":"10.244.0.0/16","SubnetLen":25,"SubnetMin":"10.244.1.0","SubnetMax":"10.244.6.0"}`,
	`{"Network":"10.99.0.0/16"}`,
	`{"Network":"10.244.0.0/16","SubnetLen":"wide"}`,
}

const goodConfigs = 4

// parsed is what became of a text.
type parsed struct {
	network routing.Network
	err     error
}

// parseConfig reads a configuration. A few texts are read all the time, and so each is only once.
func (c *Cluster) parseConfig(b []byte) (lease.NetworkConfig, error) {
	n, err := c.parse(b)
	return n.NetworkConfig, err
}

func (c *Cluster) parse(b []byte) (routing.Network, error) {
	p, done := c.parsed[string(b)]
	if !done {
		p.network, p.err = routing.Parse(b)
		c.parsed[string(b)] = p
	}
	return p.network, p.err
}

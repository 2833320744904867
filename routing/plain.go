package routing

import (
	"fmt"
	"net/netip"

	"weft/tunnel"
)

// plainOptions are the keys that each type has. Who sends is the kernel's to look at here: the keys about it are
// only checked.
type plainOptions struct {
	// MTU is the largest outer packet, in bytes; 0 for that of the underlay link.
	MTU int
}

// plainKeys declares them.
func plainKeys(o *plainOptions, ipv6 bool) []Key {
	return append(sourceKeys(new(tunnel.SourceCheck), new([]netip.Prefix)), mtuKey(&o.MTU, 0, ipv6))
}

// plainSizes are those of packets without a tunnel.
func plainSizes(link, most int, ipv6 bool) (mtus, error) {
	mtu := link
	if most > 0 {
		mtu = min(mtu, most)
	}
	least := minMTU4
	if ipv6 {
		least = minMTU6
	}
	if mtu < least {
		return mtus{mtu, mtu}, fmt.Errorf("MTU %d is below the %d that the network needs: raise that of the underlay by %d", mtu, least, least-mtu)
	}
	return mtus{mtu, mtu}, nil
}

package routing

import (
	"weft/routing/internal/kernel"
)

import "fmt"

// strictDrops tells when the underlay's link, which is not ours to change, loses peers' packets. The
// zero value counts from its first use.
type strictDrops struct {
	began bool
	first uint64
}

// note is for the operator; "" if nothing is lost, or it cannot be known. It blames a peer only once
// packets were dropped: where both sides use the tunnel a strict link does no harm.
func (s *strictDrops) note(k *kernel.Kernel, link string, reached []Reached) string {
	n, err := k.ReversePathDrops()
	if err != nil {
		return ""
	}
	if !s.began {
		s.began, s.first = true, n
	}
	peer := tunnelled(reached)
	if n == s.first || peer == "" {
		return ""
	}
	if strict, err := k.IsStrict(link); err != nil || !strict {
		return ""
	}
	return fmt.Sprintf("%d packets were dropped by rp_filter since weftd started, which is strict on %s: this node reaches %s by the tunnel, and what it sends plainly is taken for forged; sysctl -w net.ipv4.conf.%s.rp_filter=%d",
		n-s.first, link, peer, link, kernel.ReversePathLoose)
}

// tunnelled names the first peer with an IPv4 subnet that is reached by the tunnel although a plain route
// was looked for; "" if there is none.
func tunnelled(reached []Reached) string {
	for _, r := range reached {
		if r.How == HowTunnel && r.Reason != "" && r.Subnet.Addr().Is4() {
			return r.Peer
		}
	}
	return ""
}

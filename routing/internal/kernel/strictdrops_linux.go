package kernel

import (
	"fmt"
	"strings"
)

// StrictDrops tells when the underlay's link, which is not ours to change, loses peers' packets. The
// zero value counts from its first use.
type StrictDrops struct {
	began bool
	first uint64
}

// Note is for the operator, about a peer that is reached by the tunnel although a plain route was looked for,
// "" for none; "" if nothing is lost, or it cannot be known. It blames a peer only once packets were dropped:
// where both sides use the tunnel a strict link does no harm.
func (s *StrictDrops) Note(k *Kernel, link, peer string) string {
	n, err := k.ReversePathDrops()
	if err != nil {
		return ""
	}
	if !s.began {
		s.began, s.first = true, n
	}
	if n == s.first || peer == "" {
		return ""
	}
	if strict, err := k.IsStrict(link); err != nil || !strict {
		return ""
	}
	return fmt.Sprintf("%d packets were dropped by rp_filter since weftd started, which is strict on %s: this "+
		"node reaches %s by the tunnel, and what it sends plainly is taken for forged; sysctl -w "+
		"net.ipv4.conf.%s.rp_filter=%d",
		n-s.first, link, peer, strings.ReplaceAll(link, ".", "/"), ReversePathLoose)
}

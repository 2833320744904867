package pods

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Local is what of this node matters to its pods.
type Local struct {
	// Subnets are the node's own, masked, and Networks the overlay's; at most one of each family.
	Subnets, Networks []netip.Prefix
	// MTU is the largest inner packet, in bytes.
	MTU int
}

func (l Local) equal(m Local) bool {
	return l.MTU == m.MTU && slices.Equal(l.Subnets, m.Subnets) && slices.Equal(l.Networks, m.Networks)
}

// refuses says why a pod of this node cannot have an address, and what to do; "" if it can.
func (l Local) refuses(a netip.Addr) string {
	if len(l.Subnets) == 0 {
		return "this node has no subnet yet: see weft status, and try again"
	}
	i := slices.IndexFunc(l.Subnets, func(s netip.Prefix) bool { return s.Contains(a) })
	if i < 0 {
		return fmt.Sprintf("%s is not of this node's subnets %s: packets to it would go elsewhere, so ask for an "+
			"address of these (--address auto does)", a, l.text())
	}
	s := l.Subnets[i]
	switch {
	case a == s.Addr():
		return fmt.Sprintf("%s is the address of this node's own overlay device: ask for another one (--address "+
			"auto does)", a)
	case a == s.Addr().Next() && s.Bits() < a.BitLen()-1:
		return fmt.Sprintf("%s is the gateway of the pods on the bridge: ask for another one (--address auto does)",
			a)
	case a.Is4() && s.Bits() < 31 && !s.Contains(a.Next()):
		return fmt.Sprintf("%s is the broadcast address of this node's subnet: ask for another one (--address "+
			"auto does)", a)
	}
	return ""
}

func (l Local) text() string {
	var out []string
	for _, s := range l.Subnets {
		out = append(out, s.String())
	}
	return strings.Join(out, " and ")
}

// SetLocal says what is so of this node from now on.
func (s *Set) SetLocal(l Local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.equal(s.local) {
		return
	}
	s.local = l
	s.nudge() // the pods' interfaces get another MTU
	for _, p := range s.pods {
		why := s.outside(p)
		if why != "" && !p.outside {
			s.o.Logger.Warn("pod has an address that is not this node's any more", "pod", p.Key.String(), "name",
				p.label(), "addresses", text(p.Addresses), "subnets", l.text())
		}
		p.outside = why != ""
	}
}

// outside says that p has an address that is not of this node's subnets, and what to do; "" if it has none.
func (s *Set) outside(p *pod) string {
	if len(s.local.Subnets) == 0 {
		return ""
	}
	for _, a := range p.Addresses {
		if !slices.ContainsFunc(s.local.Subnets, func(n netip.Prefix) bool { return n.Contains(a) }) {
			return fmt.Sprintf("%s is not of this node's subnets %s any more, so that other nodes do not reach the "+
				"pod: %s", a, s.local.text(), p.remedy())
		}
	}
	return ""
}

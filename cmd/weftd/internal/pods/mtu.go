package pods

import (
	"fmt"
	"net/netip"
	"slices"

	"weft/cmd/internal/podport"
)

// least is the smallest MTU that p's interface may have: with less than 1280 the kernel takes it its
// addresses of IPv6.
func (p *pod) least() int {
	if slices.ContainsFunc(p.Addresses, netip.Addr.Is6) {
		return 1280
	}
	return podport.LeastMTU
}

// wanted is the MTU that p's interface is to have, in bytes. mu is held.
func (s *Set) wanted(p *pod) int {
	if !p.FollowsMTU || s.local.MTU == 0 {
		return p.MTU
	}
	return min(max(s.local.MTU, p.least()), podport.MostMTU)
}

// follow gives the interfaces of pods that follow the overlay's MTU the one that it has now. Where that fails
// it stays as it was, and the data plane tells the pod by ICMP what is too long.
func (s *Set) follow() {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	c := s.carrier
	todo := map[*pod]int{}
	for _, p := range s.pods {
		if mtu := s.wanted(p); mtu != p.MTU && mtu != p.failed && p.mtu >= 0 {
			todo[p] = mtu
		}
	}
	s.mu.Unlock()
	for p, mtu := range todo {
		if err := podport.WriteSetting(p.mtu, mtu); err != nil {
			s.mu.Lock()
			p.failed = mtu
			s.mu.Unlock()
			if !gone(p.tun) {
				s.o.Logger.Warn("pod's interface does not get the overlay's MTU: what is too long for that is answered "+
					"by ICMP", "pod", p.Key.String(), "name", p.label(), "mtu", p.MTU, "overlay", mtu, "reason", err)
			}
			continue
		}
		s.mu.Lock()
		before, id := p.MTU, p.port
		p.MTU, s.dirty = mtu, true
		s.mu.Unlock()
		if c != nil && id != 0 {
			if err := c.SetMTU(id, mtu); err != nil {
				s.o.Logger.Warn("pod's port has another MTU than its interface", "pod", p.Key.String(), "reason", err)
			}
		}
		if s.o.Keeper != nil {
			_ = s.kept(p, s.o.Keeper.Note(p.Request)) // the log has it
		}
		s.o.Logger.Info("pod's interface has the overlay's new MTU", "pod", p.Key.String(), "name", p.label(),
			"mtu", mtu, "before", before)
	}
}

// tooLong says that p's interface takes more than the overlay carries, and cannot be told; "" if that is not
// so. A pod whose MTU was chosen for it is left in peace, and so is one that could send more. mu is held.
func (s *Set) tooLong(p *pod) string {
	if mtu := s.wanted(p); mtu < p.MTU && (p.mtu < 0 || p.failed == mtu) {
		return fmt.Sprintf("its interface has an MTU of %d bytes, and the overlay carries %d by now: longer "+
			"packets cost it an answer by ICMP each ten minutes; %s", p.MTU, mtu, p.remedyMTU())
	}
	return ""
}

func (p *pod) remedyMTU() string {
	if p.By == podport.ByWeft {
		return "weft attach as before gives it the new one"
	}
	return "delete the pod, and the next one has the new one"
}

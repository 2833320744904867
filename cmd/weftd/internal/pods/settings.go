package pods

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft/cmd/internal/events"
	"weft/cmd/internal/podport"
)

// A pod with CAP_NET_ADMIN makes the queue of its interface as long as it likes, and nothing else bounds the
// memory that its packets hold in the host while weftd does not read them.
const (
	// watchEvery is how often the lengths are looked at: a pod fills some hundred MB in that time.
	watchEvery = time.Second
	// sayLongEvery bounds the lines about one pod, which may lengthen its queue again at once.
	sayLongEvery = 10 * time.Minute
)

// shorten gives interfaces whose queue is too long podport.QueueLen again, and with that the kernel drops
// what is too much. It returns when to look again.
func (s *Set) shorten(now time.Time) time.Duration {
	s.serial.Lock()
	defer s.serial.Unlock()
	s.mu.Lock()
	var watched []*pod
	for _, p := range s.pods {
		if p.queue >= 0 {
			watched = append(watched, p)
		}
	}
	s.mu.Unlock()
	for _, p := range watched {
		length, err := podport.ReadSetting(p.queue)
		if err != nil || length <= podport.QueueLen { // its device may be gone
			continue
		}
		err = podport.WriteSetting(p.queue, podport.QueueLen)
		if p.lengthened++; now.Sub(p.saidLong) < sayLongEvery {
			continue
		}
		log := s.o.Logger.With("event", events.PodQueue, "pod", p.Key.String(), "name", p.label(), "length", length,
			"most", podport.QueueLen, "times", p.lengthened)
		if p.lengthened, p.saidLong = 0, now; err != nil {
			log.Warn("pod's queue is too long, and stays so: what the pod sends while weftd is away may fill the "+
				"host's memory", "reason", err)
			continue
		}
		log.Warn("pod's queue was too long, and has weftd's own length again: its packets take the host's memory")
	}
	if len(watched) == 0 {
		return patience
	}
	return watchEvery
}

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
		_ = s.keep(p, nil) // the log has it
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

package pods

import (
	"cmp"
	"slices"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/tunnel"
)

// add counts the traffic of one port.
func add(t *control.PodCounts, p tunnel.PodStats) {
	t.SentPackets += p.TxPackets
	t.SentBytes += p.TxBytes
	t.ReceivedPackets += p.RxPackets
	t.ReceivedBytes += p.RxBytes
	for r := range p.Drops {
		t.RefusedPackets += p.Drops[r] + p.RxDrops[r]
	}
}

// Totals are about all pods together. The totals begin at zero with each data plane, and do not fall when a
// pod goes.
func (s *Set) Totals() control.PodCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.former
	if s.carrier != nil {
		ours := make(map[tunnel.PortID]bool, len(s.pods))
		for _, p := range s.pods {
			ours[p.port] = true
		}
		for _, p := range s.carrier.Stats() {
			if ours[p.Port] { // else it is about to be closed, and counted already
				add(&t, p)
			}
		}
	}
	for _, p := range s.pods {
		switch p.state {
		case podport.Attached:
			t.Attached++
		case podport.Missing:
			t.Missing++
		default:
			t.Waiting++
		}
		if s.problem(p) != "" {
			t.Problems++
		}
	}
	return t
}

// retire counts the traffic of a port that is about to be closed. mu is held.
func (s *Set) retire(c Carrier, id tunnel.PortID) {
	for _, p := range c.Stats() {
		if p.Port == id {
			add(&s.former, p)
		}
	}
}

// Busiest are the pods of list that sent and received most bytes, that one first.
func Busiest(list []podport.Pod) (out []control.PodTraffic) {
	slices.SortStableFunc(list, func(a, b podport.Pod) int {
		return cmp.Compare(b.SentBytes+b.ReceivedBytes, a.SentBytes+a.ReceivedBytes)
	})
	for _, p := range list[:min(len(list), control.MostBusiest)] {
		t := control.PodTraffic{Key: p.Key, Name: p.Name, Traffic: p.Traffic}
		for _, d := range p.Drops {
			t.RefusedPackets += d.Packets
		}
		out = append(out, t)
	}
	return out
}

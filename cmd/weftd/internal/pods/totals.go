package pods

import (
	"weft/cmd/internal/podport"
	"weft/tunnel"
)

// Totals are about all pods together. The totals begin at zero with each data plane, and do not fall when a
// pod goes.
type Totals struct {
	// Attached, Waiting and Missing count pods by state; Problems those with one.
	Attached, Waiting, Missing, Problems int
	// Sent is what pods sent, and Received what was delivered to them.
	SentPackets, SentBytes, ReceivedPackets, ReceivedBytes uint64
	// Refused are the packets from pods and to them that went no further.
	Refused uint64
}

// add counts the traffic of one port.
func (t *Totals) add(p tunnel.PodStats) {
	t.SentPackets += p.TxPackets
	t.SentBytes += p.TxBytes
	t.ReceivedPackets += p.RxPackets
	t.ReceivedBytes += p.RxBytes
	for r := range p.Drops {
		t.Refused += p.Drops[r] + p.RxDrops[r]
	}
}

// Totals returns them.
func (s *Set) Totals() Totals {
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
				t.add(p)
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
			s.former.add(p)
		}
	}
}

package pods

import (
	"fmt"
	"slices"

	"weft/cmd/internal/podport"
	"weft/tunnel"
	"weft/tunnel/port"
)

// List returns all pods, in the order of their keys, and what a new one needs to know.
func (s *Set) List() podport.Pods {
	s.mu.Lock()
	c := s.carrier
	s.mu.Unlock()
	var stats []tunnel.PodStats
	if c != nil {
		stats = c.Stats()
	}
	byPort := make(map[tunnel.PortID]tunnel.PodStats, len(stats))
	for _, t := range stats {
		byPort[t.Port] = t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := podport.Pods{Pods: make([]podport.Pod, 0, len(s.pods)), Node: podport.Node{
		Attaches: s.carrier != nil && len(s.local.Subnets) > 0, Why: s.why, Subnets: s.local.Subnets,
		Networks: s.local.Networks, MTU: s.local.MTU,
	}}
	if s.carrier != nil && len(s.local.Subnets) == 0 {
		out.Node.Why = "this node has no subnet yet: see weft status"
	}
	for _, p := range s.pods {
		out.Pods = append(out.Pods, s.shown(p, byPort[p.port]))
	}
	slices.SortFunc(out.Pods, func(a, b podport.Pod) int { return a.Key.Compare(b.Key) })
	return out
}

// show is p as people are shown it; stats are those of all ports.
func (s *Set) show(p *pod, stats []tunnel.PodStats) podport.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range stats {
		if t.Port == p.port && p.port != 0 {
			return s.shown(p, t)
		}
	}
	return s.shown(p, tunnel.PodStats{})
}

// shown is show with the stats of p's own port, or none. mu is held.
func (s *Set) shown(p *pod, t tunnel.PodStats) podport.Pod {
	out := podport.Pod{
		Request: p.Request, State: p.state, Since: p.since, Problem: s.problem(p),
		Traffic: podport.Traffic{SentPackets: t.TxPackets, SentBytes: t.TxBytes, ReceivedPackets: t.RxPackets,
			ReceivedBytes: t.RxBytes},
		LastSeen: t.LastTx,
	}
	if t.LastRx.After(t.LastTx) {
		out.LastSeen = t.LastRx
	}
	for r := range t.Drops {
		if n := t.Drops[r] + t.RxDrops[r]; n > 0 {
			r := port.DropReason(r)
			out.Drops = append(out.Drops, podport.Drop{Reason: r.String(), Packets: n, Admit: r.Admit()})
		}
	}
	return out
}

// problem says what is wrong with p, and what to do; "" if nothing is. mu is held.
func (s *Set) problem(p *pod) string {
	switch {
	case p.state == podport.Missing:
		return "weftd was restarted, and has no descriptor of its interface, which carries nothing until it is " +
			"attached again: " + p.remedy()
	case p.state == podport.Waiting && s.carrier == nil:
		return "it carries nothing, since " + s.why
	case p.state == podport.Waiting && p.why != "":
		return "it has no port: " + p.why + "; weftd tries again each second"
	}
	if why := s.outside(p); why != "" {
		return why
	}
	return s.tooLong(p)
}

// remedy says how a pod is attached anew.
func (p *pod) remedy() string {
	if p.By == podport.ByWeft {
		return fmt.Sprintf("weft detach %s --name %s, and weft attach as before", p.ID, p.Interface)
	}
	return "delete the pod, and it is made anew"
}

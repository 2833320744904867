package ops

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"weft/routing/probe"
)

// probeFamilies are what this node's questions to its peers have shown. A node with an address in each family
// shows the worse one.
func probeFamilies() []Metric {
	each := func(name, help string, labels []string,
		read func(p *probe.State, emit func(v float64, labels ...string))) Metric {
		return Metric{name, help, prometheus.GaugeValue, append([]string{"peer"}, labels...),
			func(s *page, emit func(float64, ...string)) {
				names := s.probeNames()
				for i, p := range s.worstProbes() {
					if names[i] != "" {
						read(p, func(v float64, labels ...string) { emit(v, append([]string{names[i]}, labels...)...) })
					}
				}
			}}
	}
	count := func(which probe.Answers) func(*page) float64 {
		return func(s *page) float64 {
			n := 0
			for _, p := range s.worstProbes() {
				if p.Answers == which {
					n++
				}
			}
			return float64(n)
		}
	}
	return []Metric{
		gauge("weft_peers_answering", "Peers that answer probes through the overlay.", count(probe.Yes)),
		gauge("weft_peers_silent", "Peers that do not answer probes through the overlay.", count(probe.No)),
		gauge("weft_no_peer_answers", "1 while there are peers and none answers probes.", func(s *page) float64 {
			all := s.worstProbes()
			return truth(len(all) > 0 && count(probe.No)(s) == float64(len(all)))
		}),
		each("weft_peer_answers", "1 if the peer answers probes through the overlay; absent before that is known.",
			nil, func(p *probe.State, emit func(float64, ...string)) {
				if p.Answers != probe.Unasked {
					emit(truth(p.Answers == probe.Yes))
				}
			}),
		each("weft_peer_round_trip_seconds", "Smoothed round trip to the peer through the overlay.", nil,
			func(p *probe.State, emit func(float64, ...string)) {
				if p.RTT > 0 {
					emit(p.RTT.Seconds())
				}
			}),
		each("weft_peer_loss_ratio", "Share of the last 64 probes that was lost: out to the peer, in from it, or "+
			"both for a peer that is asked by ICMP.",
			[]string{"direction"}, func(p *probe.State, emit func(float64, ...string)) {
				out, in := "out", "in"
				if p.Port == 0 {
					out = "both"
				}
				if p.Out.Of > 0 {
					emit(p.Out.Share(), out)
				}
				if p.In.Of > 0 && p.Port != 0 {
					emit(p.In.Share(), in)
				}
			}),
		each("weft_peer_path_mtu_bytes", "The largest inner packet that passed to the peer.", nil,
			func(p *probe.State, emit func(float64, ...string)) {
				if p.PathMTU > 0 {
					emit(float64(p.PathMTU))
				}
			}),
	}
}

// worstProbes is one state for each peer: that of its worst way. Probes is sorted by peer.
func (s *page) worstProbes() []*probe.State {
	var out []*probe.State
	for i := range s.Probes {
		p := &s.Probes[i]
		if n := len(out); n == 0 || out[n-1].Peer != p.Peer {
			out = append(out, p)
		} else if worse(p, out[n-1]) {
			out[n-1] = p
		}
	}
	return out
}

// probeNames are the labels of worstProbes: those of the peers' other metrics; "" for one that another has
// too.
func (s *page) probeNames() []string {
	all := s.worstProbes()
	out, seen := make([]string, len(all)), make(map[string]bool, len(all))
	for i, p := range all {
		name := cmp.Or(s.labels.Of(p.Name, p.Under), p.Name, p.Peer)
		if !seen[name] {
			seen[name] = true
			out[i] = name
		}
	}
	return out
}

func worse(a, b *probe.State) bool {
	rank := func(p *probe.State) int {
		switch {
		case p.Answers == probe.No:
			return 3
		case p.Answers == probe.Unasked:
			return 2
		case p.Lossy || p.Hole:
			return 1
		}
		return 0
	}
	return cmp.Compare(rank(a), rank(b)) > 0
}

package ops

import "github.com/prometheus/client_golang/prometheus"

// rulesFamilies returns the metrics about the host's firewall rules.
func rulesFamilies() []metric {
	return []metric{
		gauge("weft_rules_in_place", "1 if weft's firewall rules are in place.", func(s *page) float64 {
			return truth(s.Backend.Rules.InPlace)
		}),
		counter("weft_rules_repairs_total", "How often weftd put back firewall rules that others had changed.",
			func(s *page) uint64 { return s.Backend.Rules.Repaired }),
		{"weft_rules_dropped_packets_total", "Packets that weft's firewall rules dropped: from pods or strangers " +
			"to the overlay's port, or in plain where Encrypt forbids it.", prometheus.CounterValue,
			[]string{"reason"},
			func(s *page, emit func(float64, ...string)) {
				emit(float64(s.Backend.Rules.Dropped.Pods), "from_pod")
				emit(float64(s.Backend.Rules.Dropped.Strangers), "unknown_peer")
				emit(float64(s.Backend.Rules.Dropped.Plain), "plain")
			}},
	}
}

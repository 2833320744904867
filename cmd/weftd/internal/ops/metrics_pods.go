package ops

import "github.com/prometheus/client_golang/prometheus"

func podFamilies() []metric {
	return []metric{
		{"weft_pods", "Directly attached pods, by state; weft pods names them.", prometheus.GaugeValue,
			[]string{"state"},
			func(s *page, emit func(float64, ...string)) {
				emit(float64(s.pods.Attached), "attached")
				emit(float64(s.pods.Waiting), "waiting")
				emit(float64(s.pods.Missing), "missing")
			}},
		counter("weft_pod_transmit_packets_total", "Packets from directly attached pods.", func(s *page) uint64 {
			return s.pods.SentPackets
		}),
		counter("weft_pod_transmit_bytes_total", "Bytes from directly attached pods.", func(s *page) uint64 {
			return s.pods.SentBytes
		}),
		counter("weft_pod_receive_packets_total", "Packets delivered to directly attached pods.",
			func(s *page) uint64 { return s.pods.ReceivedPackets }),
		counter("weft_pod_receive_bytes_total", "Bytes delivered to directly attached pods.", func(s *page) uint64 {
			return s.pods.ReceivedBytes
		}),
		counter("weft_pod_refused_packets_total",
			"Packets from or to directly attached pods that were dropped; weft pods says why.", func(s *page) uint64 {
				return s.pods.RefusedPackets
			}),
	}
}

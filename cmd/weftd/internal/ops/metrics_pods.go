package ops

import "github.com/prometheus/client_golang/prometheus"

// Pods are about the pods that are attached directly, all together. Series for each of them, of which every container that ever ran would leave
// some with who scrapes, are made of PodInterface, and only where they were asked for.
type Pods struct {
	Attached, Waiting, Missing                                      int
	SentPackets, SentBytes, ReceivedPackets, ReceivedBytes, Refused uint64
}

func podFamilies() []metric {
	return []metric{
		{"weft_pods", "Pods that are attached directly, by state: attached, waiting for a data plane, or missing since a restart of weftd; weft pods names them.", prometheus.GaugeValue, []string{"state"},
			func(s *Snapshot, emit func(float64, ...string)) {
				emit(float64(s.Pods.Attached), "attached")
				emit(float64(s.Pods.Waiting), "waiting")
				emit(float64(s.Pods.Missing), "missing")
			}},
		counter("weft_pod_transmit_packets_total", "Packets that directly attached pods have sent.", func(s *Snapshot) uint64 { return s.Pods.SentPackets }),
		counter("weft_pod_transmit_bytes_total", "Bytes of the packets that directly attached pods have sent.", func(s *Snapshot) uint64 { return s.Pods.SentBytes }),
		counter("weft_pod_receive_packets_total", "Packets that were delivered to directly attached pods.", func(s *Snapshot) uint64 { return s.Pods.ReceivedPackets }),
		counter("weft_pod_receive_bytes_total", "Bytes of the packets that were delivered to directly attached pods.", func(s *Snapshot) uint64 { return s.Pods.ReceivedBytes }),
		counter("weft_pod_refused_packets_total", "Packets from directly attached pods, or to them, that went no further; weft pods says whose and why.", func(s *Snapshot) uint64 { return s.Pods.Refused }),
	}
}

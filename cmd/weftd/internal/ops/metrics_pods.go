package ops

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"weft/cmd/internal/podport"
)

// maxPodLabel bounds the label of a pod, in bytes: who attaches a pod chooses its name, and who scrapes keeps
// it for weeks.
const maxPodLabel = 128

// podLabels returns a label for each of the pods' interfaces, so that no two of one name have the same
// interface: pods of one name are told apart by their ids. A name that is too long gives way to the id.
func podLabels(all []podport.Pod) []string {
	type series struct{ name, iface string }
	times := make(map[series]int, len(all))
	for i := range all {
		times[series{all[i].Name, all[i].Interface}]++
	}
	out := make([]string, len(all))
	seen := make(map[series]bool, len(all))
	for i := range all {
		p := &all[i]
		name := p.Name
		switch {
		case name == "" || len(name) > maxPodLabel:
			name = p.ID
		case times[series{name, p.Interface}] > 1:
			name += " " + p.ID
		}
		if k := (series{name, p.Interface}); !seen[k] {
			// a second one would have whoever scrapes refuse the whole page
			seen[k] = true
			out[i] = name
		}
	}
	return out
}

// podInterfaceFamilies are about single pods.
func podInterfaceFamilies() []Metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*podport.Pod) float64) Metric {
		return Metric{name, help, kind, []string{"pod", "interface"}, func(s *page, emit func(float64, ...string)) {
			labels := s.podNames
			for i := range s.EachPod {
				if labels[i] != "" {
					emit(v(&s.EachPod[i]), labels[i], s.EachPod[i].Interface)
				}
			}
		}}
	}
	count := func(name, help string, v func(*podport.Pod) uint64) Metric {
		return each(name, help, prometheus.CounterValue, func(p *podport.Pod) float64 { return float64(v(p)) })
	}
	return []Metric{
		{"weft_pod_interface_info", "Always 1; the labels say which directly attached pod it is.",
			prometheus.GaugeValue, []string{"pod", "interface", "id", "addresses", "by"},
			func(s *page, emit func(float64, ...string)) {
				labels := s.podNames
				for i := range s.EachPod {
					p := &s.EachPod[i]
					var addrs []string
					for _, a := range p.Addresses {
						addrs = append(addrs, a.String())
					}
					if labels[i] != "" {
						emit(1, labels[i], p.Interface, p.ID, strings.Join(addrs, " "), p.By)
					}
				}
			}},
		each("weft_pod_interface_attached", "1 if the directly attached pod has a port; 0 while it waits for one.",
			prometheus.GaugeValue, func(p *podport.Pod) float64 { return truth(p.State == podport.Attached) }),
		count("weft_pod_interface_transmit_packets_total", "Packets from the pod.", func(p *podport.Pod) uint64 {
			return p.SentPackets
		}),
		count("weft_pod_interface_transmit_bytes_total", "Bytes from the pod.", func(p *podport.Pod) uint64 {
			return p.SentBytes
		}),
		count("weft_pod_interface_receive_packets_total", "Packets delivered to the pod.",
			func(p *podport.Pod) uint64 { return p.ReceivedPackets }),
		count("weft_pod_interface_receive_bytes_total", "Bytes delivered to the pod.", func(p *podport.Pod) uint64 {
			return p.ReceivedBytes
		}),
		count("weft_pod_interface_refused_packets_total",
			"Packets from or to the pod that were dropped; weft pods says why.", func(p *podport.Pod) uint64 {
				var n uint64
				for _, d := range p.Drops {
					n += d.Packets
				}
				return n
			}),
	}
}

func podFamilies() []Metric {
	return []Metric{
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

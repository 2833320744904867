package ops

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weft/routing"
)

// deviceFamilies are the traffic of a node whose kernel moves the packets, as its devices count it.
func deviceFamilies() []Metric {
	each := func(name, help string, out, in func(*routing.DeviceTraffic) uint64) Metric {
		return Metric{name, help, prometheus.CounterValue, []string{"device", "scope", "direction"},
			func(s *page, emit func(float64, ...string)) {
				for i := range s.Devices {
					d := &s.Devices[i]
					scope := "host"
					if d.Overlay {
						scope = "overlay"
					}
					emit(float64(out(d)), d.Name, scope, "egress")
					emit(float64(in(d)), d.Name, scope, "ingress")
				}
			}}
	}
	return []Metric{
		each("weft_device_packets_total", "Packets on a device by which the kernel moves the overlay's packets. "+
			"Scope overlay has only those; scope host has the host's other packets too.",
			func(d *routing.DeviceTraffic) uint64 { return d.TxPackets },
			func(d *routing.DeviceTraffic) uint64 { return d.RxPackets }),
		each("weft_device_bytes_total", "Bytes on a device by which the kernel moves the overlay's packets, with "+
			"Ethernet headers.",
			func(d *routing.DeviceTraffic) uint64 { return d.TxBytes },
			func(d *routing.DeviceTraffic) uint64 { return d.RxBytes }),
		each("weft_device_dropped_packets_total",
			"Packets dropped at a device by which the kernel moves the overlay's packets.",
			func(d *routing.DeviceTraffic) uint64 { return d.TxDropped },
			func(d *routing.DeviceTraffic) uint64 { return d.RxDropped }),
		each("weft_device_errors_total", "Packets that a device by which the kernel moves the overlay's packets "+
			"could not send or receive.",
			func(d *routing.DeviceTraffic) uint64 { return d.TxErrors },
			func(d *routing.DeviceTraffic) uint64 { return d.RxErrors }),
	}
}

// rulesFamilies returns the metrics about the host's firewall rules.
func rulesFamilies() []Metric {
	return []Metric{
		gauge("weft_rules_in_place", "1 if weft's firewall rules are in place.", func(s *page) float64 {
			return truth(s.Backend.Rules.InPlace)
		}),
		counter("weft_rules_repairs_total", "How often weftd put back firewall rules that others had changed.",
			func(s *page) uint64 { return s.Backend.Rules.Repaired }),
		{"weft_rules_dropped_packets_total", "Packets that weft's firewall rules dropped: to the " +
			"overlay's port from pods, by a link that leads to no peer or from strangers, or in plain where Encrypt " +
			"forbids it.", prometheus.CounterValue,
			[]string{"reason"},
			func(s *page, emit func(float64, ...string)) {
				emit(float64(s.Backend.Rules.Dropped.Pods), "from_pod")
				emit(float64(s.Backend.Rules.Dropped.Strangers), "unknown_peer")
				emit(float64(s.Backend.Rules.Dropped.Plain), "plain")
			}},
	}
}

// encryptedFamilies are absent for other backends.
func encryptedFamilies() []Metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*encryptedPeer) float64) Metric {
		return Metric{name, help, kind, []string{"peer"}, func(s *page, emit func(float64, ...string)) {
			for i := range s.encrypted {
				emit(v(&s.encrypted[i]), s.encrypted[i].name)
			}
		}}
	}
	return []Metric{
		{"weft_wireguard_asked_timestamp_seconds",
			"Unix time at which WireGuard's devices were last asked; the older one of two devices.",
			prometheus.GaugeValue, nil,
			func(s *page, emit func(float64, ...string)) {
				if len(s.encrypted) > 0 {
					emit(unix(slices.MinFunc(s.encrypted, func(a, b encryptedPeer) int {
						return a.asked.Compare(b.asked)
					}).asked))
				}
			}},
		each("weft_peer_latest_handshake_timestamp_seconds",
			"Unix time of the latest WireGuard handshake with the peer; 0 for none.",
			prometheus.GaugeValue, func(p *encryptedPeer) float64 { return unix(p.handshake) }),
		each("weft_peer_encrypted_transmit_bytes_total", "Encrypted bytes sent to the peer.",
			prometheus.CounterValue, func(p *encryptedPeer) float64 { return float64(p.sent) }),
		each("weft_peer_encrypted_receive_bytes_total", "Encrypted bytes received from the peer.",
			prometheus.CounterValue, func(p *encryptedPeer) float64 { return float64(p.received) }),
	}
}

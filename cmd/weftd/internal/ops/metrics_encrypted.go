package ops

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// encryptedFamilies are absent for other backends.
func encryptedFamilies() []metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*encryptedPeer) float64) metric {
		return metric{name, help, kind, []string{"peer"}, func(s *page, emit func(float64, ...string)) {
			for i := range s.encrypted {
				emit(v(&s.encrypted[i]), s.encrypted[i].name)
			}
		}}
	}
	return []metric{
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

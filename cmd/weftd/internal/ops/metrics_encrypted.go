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
		{"weft_wireguard_asked_timestamp_seconds", "Unix time of the answer of WireGuard's devices from which the other series about it are; with two devices the older one.", prometheus.GaugeValue, nil,
			func(s *page, emit func(float64, ...string)) {
				if len(s.encrypted) > 0 {
					emit(unix(slices.MinFunc(s.encrypted, func(a, b encryptedPeer) int { return a.asked.Compare(b.asked) }).asked))
				}
			}},
		each("weft_peer_latest_handshake_timestamp_seconds", "Unix time of the latest handshake of WireGuard with this peer; 0 if there was none since the device was made.",
			prometheus.GaugeValue, func(p *encryptedPeer) float64 { return unix(p.handshake) }),
		each("weft_peer_encrypted_transmit_bytes_total", "Encrypted bytes that were sent to this peer.", prometheus.CounterValue, func(p *encryptedPeer) float64 { return float64(p.sent) }),
		each("weft_peer_encrypted_receive_bytes_total", "Encrypted bytes that were received from this peer.", prometheus.CounterValue, func(p *encryptedPeer) float64 { return float64(p.received) }),
	}
}

package ops

import (
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// EncryptedPeer is what the devices of WireGuard know of a peer, which may be one of two devices.
type EncryptedPeer struct {
	// Name is PeerInfo's, and Addr one of its addresses.
	Name string
	Addr netip.Addr
	// Handshake is when the latest was completed; zero for none since the device was made.
	Handshake time.Time
	// TxBytes and RxBytes are of encrypted datagrams' payloads.
	TxBytes, RxBytes uint64
	// Asked is when a device said so; the older time, if there are two.
	Asked time.Time
}

// encryptedFamilies are absent for other backends.
func encryptedFamilies() []metric {
	each := func(name, help string, kind prometheus.ValueType, v func(*EncryptedPeer) float64) metric {
		return metric{name, help, kind, []string{"peer"}, func(s *Snapshot, emit func(float64, ...string)) {
			if len(s.Encrypted) == 0 {
				return
			}
			known, seen := s.knownPlaces(), make(map[string]bool, len(s.Encrypted))
			for i := range s.Encrypted {
				p := &s.Encrypted[i]
				if name, ok := known[place{p.Name, p.Addr}]; ok && !seen[name] {
					seen[name] = true
					emit(v(p), name)
				}
			}
		}}
	}
	return []metric{
		{"weft_wireguard_asked_timestamp_seconds", "Unix time of the answer of WireGuard's devices from which the other series about it are; with two devices the older one.", prometheus.GaugeValue, nil,
			func(s *Snapshot, emit func(float64, ...string)) {
				if len(s.Encrypted) > 0 {
					emit(unix(slices.MinFunc(s.Encrypted, func(a, b EncryptedPeer) int { return a.Asked.Compare(b.Asked) }).Asked))
				}
			}},
		each("weft_peer_latest_handshake_timestamp_seconds", "Unix time of the latest handshake of WireGuard with this peer; 0 if there was none since the device was made.",
			prometheus.GaugeValue, func(p *EncryptedPeer) float64 { return unix(p.Handshake) }),
		each("weft_peer_encrypted_transmit_bytes_total", "Encrypted bytes that were sent to this peer.", prometheus.CounterValue, func(p *EncryptedPeer) float64 { return float64(p.TxBytes) }),
		each("weft_peer_encrypted_receive_bytes_total", "Encrypted bytes that were received from this peer.", prometheus.CounterValue, func(p *EncryptedPeer) float64 { return float64(p.RxBytes) }),
	}
}

package ops

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

// TestEncryptedPeersHaveTheirNames: the series of WireGuard have the labels that a peer's others have, and
// are absent elsewhere.
func TestEncryptedPeersHaveTheirNames(t *testing.T) {
	v4 := func(s string) lease.Subnets { return lease.Subnets{V4: netip.MustParsePrefix(s)} }
	s := &control.Snapshot{
		Backend: routing.Status{Path: routing.PathKernel},
		Records: []lease.Record{
			nodeOf("n", "1", lease.Attrs{PublicIP: addrOf("192.0.2.1")}, v4("10.42.1.0/24")),
			nodeOf("n", "2", lease.Attrs{PublicIP: addrOf("192.0.2.2")}, v4("10.42.2.0/24")),
		},
		Encrypted: map[netip.Prefix]control.Encryption{
			netip.MustParsePrefix("10.42.1.0/24"): {Handshake: time.Unix(1763769600, 0), TxBytes: 5, RxBytes: 7,
				Asked: time.Unix(1763769700, 0)},
			netip.MustParsePrefix("10.42.2.0/24"): {TxBytes: 148, Asked: time.Unix(1763769600, 0)},
			netip.MustParsePrefix("10.42.3.0/24"): {Asked: time.Unix(1763769800, 0)}, // a peer that is gone
		},
	}
	text := scrape(t, s)
	for _, want := range []string{
		`weft_peer_latest_handshake_timestamp_seconds{peer="n 1"} 1.7637696e+09`,
		`weft_peer_latest_handshake_timestamp_seconds{peer="n 2"} 0`,
		`weft_peer_encrypted_transmit_bytes_total{peer="n 1"} 5`,
		`weft_peer_encrypted_receive_bytes_total{peer="n 1"} 7`,
		`weft_peer_encrypted_transmit_bytes_total{peer="n 2"} 148`,
		`weft_wireguard_asked_timestamp_seconds 1.7637696e+09`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if s.Encrypted = nil; strings.Contains(scrape(t, s), "weft_peer_encrypted") ||
		strings.Contains(scrape(t, s), "weft_wireguard_asked") {
		t.Error("there are series without type wireguard")
	}
}

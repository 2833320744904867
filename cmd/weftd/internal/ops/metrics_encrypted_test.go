package ops

import (
	"strings"
	"testing"
	"time"
)

// TestEncryptedPeersHaveTheirNames: the series of WireGuard have the labels that a peer's others have, and are absent elsewhere.
func TestEncryptedPeersHaveTheirNames(t *testing.T) {
	s := Snapshot{
		KernelMoves: true,
		Infos:       []PeerInfo{{Name: "n", ID: "1", PublicIP: addrOf("192.0.2.1")}, {Name: "n", ID: "2", PublicIP: addrOf("192.0.2.2")}},
		Encrypted: []EncryptedPeer{
			{Name: "n", Addr: addrOf("192.0.2.1"), Handshake: time.Unix(1763769600, 0), TxBytes: 5, RxBytes: 7, Asked: time.Unix(1763769700, 0)},
			{Name: "n", Addr: addrOf("192.0.2.2"), TxBytes: 148, Asked: time.Unix(1763769600, 0)},
			{Name: "gone", Addr: addrOf("192.0.2.3"), Asked: time.Unix(1763769800, 0)},
		},
	}
	text := scrape(t, s)
	for _, want := range []string{
		`weft_peer_latest_handshake_timestamp_seconds{peer="n 1"} 1.7637696e+09`, `weft_peer_latest_handshake_timestamp_seconds{peer="n 2"} 0`,
		`weft_peer_encrypted_transmit_bytes_total{peer="n 1"} 5`, `weft_peer_encrypted_receive_bytes_total{peer="n 1"} 7`, `weft_peer_encrypted_transmit_bytes_total{peer="n 2"} 148`,
		`weft_wireguard_asked_timestamp_seconds 1.7637696e+09`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(text, `peer="gone`) {
		t.Error("a peer without a record has series")
	}
	if s.Encrypted = nil; strings.Contains(scrape(t, s), "weft_peer_encrypted") || strings.Contains(scrape(t, s), "weft_wireguard_asked") {
		t.Error("there are series without type wireguard")
	}
}

package routing

import (
	"encoding/json"
	"fmt"

	"weft/routing/internal/wireguard"
)

// wireGuardOverhead is by how much a packet grows at the most, in bytes: an IPv6 header of 40, UDP's 8,
// WireGuard's 16 and the tag's 16. flannel takes it off whatever the outer family is, so that all nodes of a
// network have one MTU.
const wireGuardOverhead = 80

// wireGuardData is BackendData, byte for byte flannel's.
func wireGuardData(k wireguard.PublicKey, port uint16) json.RawMessage {
	return fmt.Appendf(nil, `{"PublicKey":"%s","Port":%d}`, k, port)
}

// wireGuardRecord is what a peer publishes. Port is 0 with a flannel from before 0.26, which means that all
// nodes have one port.
type wireGuardRecord struct {
	key  wireguard.PublicKey
	port uint16
}

// parseWireGuardData reads a peer's BackendData or BackendV6Data.
func parseWireGuardData(b json.RawMessage) (wireGuardRecord, error) {
	if !given(b) {
		return wireGuardRecord{}, fmt.Errorf("it publishes none, and so no key")
	}
	var v struct {
		PublicKey string
		Port      uint16
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return wireGuardRecord{}, fmt.Errorf("it publishes %s, which is not what wireguard has", shorten(b))
	}
	k, err := wireguard.ParsePublicKey(v.PublicKey)
	if err != nil {
		return wireGuardRecord{}, fmt.Errorf("its PublicKey is %s: %w", shorten([]byte(v.PublicKey)), err)
	}
	return wireGuardRecord{k, v.Port}, nil
}

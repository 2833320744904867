package control

import (
	"context"
	"net/http"
	"net/netip"
	"time"
)

// Encryption is what a device of WireGuard knows of a peer.
type Encryption struct {
	Device    string `json:"device"`
	PublicKey string `json:"publicKey"`
	// Endpoint is where packets for the peer are sent: where its record says, or where it was heard from last.
	Endpoint netip.AddrPort `json:"endpoint,omitzero"`
	// Handshake is when the last one was completed; zero for none since the device was made.
	Handshake time.Time `json:"latestHandshake,omitzero"`
	// TxBytes and RxBytes are encrypted.
	TxBytes uint64 `json:"txBytes"`
	RxBytes uint64 `json:"rxBytes"`
	// Asked is when the device said so.
	Asked time.Time `json:"asked,omitzero"`
	// Likely is the cause of what is wrong, and Look what to look at; "" if nothing is.
	Likely string `json:"likely,omitempty"`
	Look   string `json:"look,omitempty"`
}

// Rotated is the answer to a request for a new key.
type Rotated struct {
	// Before and PublicKey are the public keys of the old private key and of the new one.
	Before    string `json:"before"`
	PublicKey string `json:"publicKey"`
}

// RotateKey has the daemon make a new private key, and its record say so.
func (c *Client) RotateKey(ctx context.Context) (r Rotated, err error) {
	return r, c.Do(ctx, http.MethodPost, "/v1/rotate-key", nil, &r)
}

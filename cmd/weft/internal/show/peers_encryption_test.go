package show

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
)

// TestEncryption prints what WireGuard knows of peers, and names the fault of one that is not heard.
func TestEncryption(t *testing.T) {
	now := time.Now()
	p := control.Peers{Peers: []control.Peer{
		{Name: "a", Encryption: []control.Encryption{{Device: "flannel-wg", PublicKey: "QQ==",
			Endpoint: netip.MustParseAddrPort("192.0.2.1:51820"), Handshake: now.Add(-time.Minute), TxBytes: 2048,
			RxBytes: 10}}},
		{Name: "b\x1b[2J", Encryption: []control.Encryption{{Device: "flannel-wg", PublicKey: "Qg==",
			Endpoint: netip.MustParseAddrPort("[2001:db8::1]:7"), TxBytes: 148, Likely: "no handshake",
			Look: "a firewall?"}}},
		{Name: "c"},
	}}
	var b strings.Builder
	if err := printEncryption(&b, p, now); err != nil {
		t.Fatal(err)
	}
	want := `
ENCRYPTED TO  DEVICE      ENDPOINT         LATEST HANDSHAKE  SENT    RECEIVED  PUBLIC KEY
a             flannel-wg  192.0.2.1:51820  1m00s ago         2.0KiB  10B       QQ==
b?[2J         flannel-wg  [2001:db8::1]:7  never             148B    0B        Qg==

b?[2J: no handshake: a firewall?
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

package daemon

import (
	"testing"

	"weft/lease"
)

// Another PSK is seen as a change, in a key of any case, and where wireguard is what it goes by only.
func TestPSKIsCompared(t *testing.T) {
	for _, c := range []struct{ kind, backend, want string }{
		{"wireguard", `{"Type":"wireguard","PSK":"a"}`, "a"},
		{"WireGuard", `{"Type":"WireGuard","psk":"a"}`, "a"},
		{"wireguard", `{"Type":"wireguard"}`, ""},
		{"auto", `{"Type":"auto","Encrypt":"Always","PSK":"a"}`, "a"},
		{"auto", `{"Type":"auto","PSK":"a"}`, ""},
		{"ipsec", `{"Type":"ipsec","PSK":"a"}`, ""},
		{"udp", "", ""},
	} {
		if got := psk(lease.NetworkConfig{BackendType: c.kind, Backend: []byte(c.backend)}); got != c.want {
			t.Errorf("%s: %q, want %q", c.backend, got, c.want)
		}
	}
}

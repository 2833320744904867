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

// TestEncryptIsCompared: who does not hear whom is said of two nodes of type auto only, since those of type wireguard are peers of both that encrypt.
func TestEncryptIsCompared(t *testing.T) {
	config := func(kind, backend string) lease.NetworkConfig {
		return lease.NetworkConfig{BackendType: kind, Backend: []byte(backend)}
	}
	plain, always, between := config("auto", `{}`), config("auto", `{"Encrypt":"always"}`), config("auto", `{"Encrypt":"between-links"}`)
	for _, c := range []struct {
		now, then lease.NetworkConfig
		want      string
	}{
		{always, always, ""},
		{always, between, `Encrypt from "always" to "between-links"`},
		{plain, always, `Encrypt from "" to "always": this node and those that have the other one do not hear each other`},
		{between, plain, `Encrypt from "between-links" to "": this node and those that have the other one do not hear each other`},
		{between, config("wireguard", `{}`), `Encrypt from "between-links" to ""`},
		{config("wireguard", `{}`), always, `Encrypt from "" to "always"`},
	} {
		if got := encryptChange(c.now, c.then); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.now.Backend, c.then.Backend, got, c.want)
		}
	}
}

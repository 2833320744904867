package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/kernel"
)

// TestParseConfig wants every fault at once, whichever package knows the key.
func TestParseConfig(t *testing.T) {
	for _, tt := range []struct {
		config string
		faults []string // keys; none for a config that can be served
	}{
		{`{"Network":"10.42.0.0/16"}`, nil},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"UDP","Port":9}}`, nil},
		{`{`, []string{""}},
		{`{"Network":"10.42.0.0/16","Backend":{}}`, []string{"Backend"}},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"VXLAN"}}`, nil},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"Host-GW","MTU":1400}}`, nil},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"alloc"}}`, nil},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"extension","SubnetAddCommand":"true"}}`, nil},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"ipsec"}}`, []string{"Backend.Type"}},
		{`{"Backend":{"Type":"ipsec"}}`, []string{"Network", "Backend.Type"}},
		{`{"Backend":{"Type":"vxlan","VNI":-1,"Port":"x"}}`, []string{"Network", "Backend.VNI", "Backend.Port"}},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"extension","PreStartupCommand":1,"SubnetAddCommand":[]}}`,
			[]string{"Backend.PreStartupCommand", "Backend.SubnetAddCommand"}},
		{
			`{"Network":"10.42.0.0/16","SubnetLen":99,"SubnetMin":"1.2.3.4","Backend":{"Type":"udp","Port":0,"Path":"x","SourceCheck":"y","AllowedSources":["z"],"MTU":1}}`,
			[]string{"SubnetLen", "SubnetMin", "Backend.Port", "Backend.Path", "Backend.SourceCheck",
				"Backend.AllowedSources", "Backend.MTU"}},
		{`{"EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"MTU":1280,"Type":"udp"}}`,
			[]string{"Network", "Backend.MTU"}},
	} {
		c, err := Parse([]byte(tt.config))
		keys := faultKeys(t, err)
		if strings.Join(keys, " ") != strings.Join(tt.faults, " ") || len(keys) != len(tt.faults) {
			t.Errorf("%s\n got %q\nwant %q", tt.config, keys, tt.faults)
		}
		if (err == nil) != (c.BackendType != "") {
			t.Errorf("%s: %v with %+v", tt.config, err, c)
		}
	}
}

// Each key of each type has its faults, which name the key, and no secret.
func TestKeyFaults(t *testing.T) {
	const six = `,"EnableIPv6":true,"IPv6Network":"fd00:5::/48"`
	for _, tt := range []struct{ network, kind, keys, fault string }{
		{"", "ipip", ``, ""},
		{"", "ipip", `"DirectRouting":true,"Userspace":"always","MTU":1400,"SourceCheck":"outer"`, ""},
		{six, "ipip", ``, "EnableIPv6"},
		{"", "ipip", `"Userspace":"maybe"`, "Backend.Userspace"},
		{"", "ipip", `"MTU":68`, "Backend.MTU"},
		{"", "ipip", `"DirectRouting":"yes"`, "Backend.DirectRouting"},
		{"", "udp", `"Port":-1`, "Backend.Port"},
		{"", "udp", `"Port":65536`, "Backend.Port"},
		{"", "udp", `"Port":"8285"`, "Backend.Port"},
		{"", "udp", `"Port":1.5`, "Backend.Port"},
		{"", "udp", `"Path":1`, "Backend.Path"},
		{"", "udp", `"DisableOffloads":"tun-tso"`, "Backend.DisableOffloads"},
		{"", "udp", `"DisableOffloads":["warp"]`, "Backend.DisableOffloads"},
		{"", "udp", `"SourceCheck":true`, "Backend.SourceCheck"},
		{"", "udp", `"AllowedSources":"10.0.0.0/8"`, "Backend.AllowedSources"},
		{"", "udp", `"AllowedSources":["10.0.0.1"]`, "Backend.AllowedSources"},
		{"", "udp", `"AllowedSources":["::ffff:10.0.0.0/104"]`, "Backend.AllowedSources"},
		{"", "udp", `"RxUDPGROForwarding":"yes"`, "Backend.RxUDPGROForwarding"},
		{"", "udp", `"MTU":575`, "Backend.MTU"},
		{"", "udp", `"MTU":65536`, "Backend.MTU"},
		{six, "udp", `"MTU":1307`, "Backend.MTU"},
		{six, "vxlan", `"VNI":"x","Port":65536,"GBP":1,"Learning":"y","DirectRouting":null`,
			"Backend.VNI Backend.Port Backend.GBP Backend.Learning"},
		{six, "vxlan", `"MacPrefix":"01-00","DisableOffloads":["y"]`, "Backend.MacPrefix Backend.DisableOffloads"},
		{six, "vxlan", `"VNI":10000`, "Backend.VNI"}, // no room in flannel-v6.10000
		{six, "vxlan", `"MTU":1349`, "Backend.MTU"},  // 1280 and 70
		// Nothing that is like a wish to encrypt is taken for none.
		{six, "auto", `"Encrypt":""`, "Backend.Encrypt"},
		{six, "auto", `"Encrypt":"always","encrypt":null`, "Backend.Encrypt"},
		{six, "auto", `"Encrypt":true`, "Backend.Encrypt"},
		{six, "auto", `"Encrypt":"never"`, "Backend.Encrypt"},
		{six, "auto", `"Encrypt":"always","Mode":"x"`, "Backend.Mode"},
		{six, "vxlan", `"Encrypt":null`, "Backend.Encrypt"},
		{six, "wireguard", `"encrypt":"between-links"`, "Backend.Encrypt"},
		{six, "host-gw", `"Encrypt":"always","Encrypt":"none"`, "Backend.Encrypt"},
		{six, "wireguard", `"ListenPort":0`, "Backend.ListenPort"},
		{six, "wireguard", `"ListenPortV6":"x"`, "Backend.ListenPortV6"},
		{six, "wireguard", `"PSK":"` + testPSK[:40] + `"`, "Backend.PSK"},
		{six, "wireguard", `"PSK":"` + strings.Repeat("A", 43) + `="`, "Backend.PSK"},
		{six, "wireguard", `"PSK":5`, "Backend.PSK"},
		{six, "wireguard", `"PersistentKeepaliveInterval":-1`, "Backend.PersistentKeepaliveInterval"},
		{six, "wireguard", `"Mode":"separat"`, "Backend.Mode"},
		{six, "wireguard", `"Userspace":"yes"`, "Backend.Userspace"},
		{six, "wireguard", `"MTU":1300`, "Backend.MTU"},
		{six, "wireguard", `"ListenPort":51821`, "Backend.ListenPortV6"},
	} {
		config := `{"Network":"10.5.0.0/16"` + tt.network + `,"Backend":{` +
			strings.TrimSuffix(`"Type":"`+tt.kind+`",`+tt.keys, ",") + `}}`
		_, err := Parse([]byte(config))
		if got := strings.Join(faultKeys(t, err), " "); got != tt.fault || err != nil &&
			strings.Contains(err.Error(), testPSK[:20]) {
			t.Errorf("%s: %v, want %q", config, err, tt.fault)
		}
	}
}

func TestNoMasqueradeKey(t *testing.T) {
	for backend, want := range map[string]string{
		``:                     "[]",
		`,"NoMasquerade":[]`:   "[]",
		`,"nomasquerade":null`: "[]",
		`,"NoMasquerade":["192.0.2.9/24","2001:db8::/32","10.0.0.0/8","192.0.2.0/24"]`: "[10.0.0.0/8 192.0.2.0/24 2001:db8::/32]",
		`,"NoMasquerade":"10.0.0.0/8"`:          "NoMasquerade",
		`,"NoMasquerade":["10.0.0.0","x"]`:      `"x"`,
		`,"NoMasquerade":["::ffff:1.2.3.4/99"]`: "::ffff:1.2.3.4/99",
	} {
		network, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"udp"` + backend + `}}`))
		text := fmt.Sprint(network.NoMasquerade)
		if err != nil {
			text = err.Error()
			if !errors.As(err, new(*lease.ConfigError)) {
				t.Errorf("%s: %T", backend, err)
			}
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", backend, text, want)
		}
	}
}

// faultKeys are the keys at fault.
func faultKeys(t *testing.T, err error) (keys []string) {
	t.Helper()
	for _, e := range flatten(err) {
		if ce, ok := e.(*lease.ConfigError); ok {
			keys = append(keys, ce.Key)
		} else {
			t.Errorf("%T %v", e, e)
		}
	}
	return keys
}

func flatten(err error) []error {
	var out []error
	for _, e := range kernel.Joined(err) {
		if _, joined := e.(interface{ Unwrap() []error }); joined {
			out = append(out, flatten(e)...)
			continue
		}
		out = append(out, e)
	}
	return out
}

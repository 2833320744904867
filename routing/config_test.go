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

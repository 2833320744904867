package lease_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/leasetest"
)

func TestParseNetworkConfigDefaults(t *testing.T) {
	tests := []struct {
		name, in                 string
		backend                  string
		v4                       string // network, length, first, last
		v6                       string
		wantNFT, wantV4, wantOff bool
	}{
		{name: "only Network", in: `{"Network":"10.244.0.0/16"}`, backend: "udp",
			v4: "10.244.0.0/16 24 10.244.1.0 10.244.255.0"},
		{name: "host bits masked", in: `{"Network":"10.244.7.9/16"}`, backend: "udp",
			v4: "10.244.0.0/16 24 10.244.1.0 10.244.255.0"},
		{name: "keys in any case", in: `{"nETWORK":"10.0.0.0/8","subnetlen":20,"BACKEND":{"type":"VXLAN"}}`,
			backend: "vxlan", v4: "10.0.0.0/8 20 10.0.16.0 10.255.240.0"},
		{name: "the later of two spellings", in: `{"network":"10.1.0.0/16","Network":"10.2.0.0/16"}`,
			backend: "udp", v4: "10.2.0.0/16 24 10.2.1.0 10.2.255.0"},
		{name: "/24 gives /26", in: `{"Network":"10.0.0.0/24"}`, backend: "udp",
			v4: "10.0.0.0/24 26 10.0.0.64 10.0.0.192"},
		{name: "/28 gives /30", in: `{"Network":"10.0.0.0/28"}`, backend: "udp",
			v4: "10.0.0.0/28 30 10.0.0.4 10.0.0.12"},
		{name: "/22 gives /24", in: `{"Network":"10.0.0.0/22"}`, backend: "udp",
			v4: "10.0.0.0/22 24 10.0.1.0 10.0.3.0"},
		{name: "/23 gives /25", in: `{"Network":"10.0.0.0/23"}`, backend: "udp",
			v4: "10.0.0.0/23 25 10.0.0.128 10.0.1.128"},
		{name: "zero length is absent", in: `{"Network":"10.0.0.0/16","SubnetLen":0}`, backend: "udp",
			v4: "10.0.0.0/16 24 10.0.1.0 10.0.255.0"},
		{name: "first subnet if asked for",
			in: `{"Network":"10.0.0.0/16","SubnetMin":"10.0.0.0","SubnetMax":"10.0.9.0"}`, backend: "udp",
			v4: "10.0.0.0/16 24 10.0.0.0 10.0.9.0"},
		{name: "dual stack", in: `{"Network":"10.0.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`,
			backend: "udp", v4: "10.0.0.0/16 24 10.0.1.0 10.0.255.0", v6: "fd00::/48 64 fd00:0:0:1:: fd00:0:0:ffff::"},
		{name: "/63 gives /65", in: `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/63"}`,
			backend: "udp", v6: "fd00::/63 65 fd00::8000:0:0:0 fd00:0:0:1:8000::"},
		{name: "a family that is off is not looked at", in: `{"Network":"10.0.0.0/16","IPv6Network":"fd00::/127"}`,
			backend: "udp", v4: "10.0.0.0/16 24 10.0.1.0 10.0.255.0"},
		{name: "unknown keys", in: `{"Network":"10.0.0.0/16","Comment":[1,{"Network":"x"}]}`, backend: "udp",
			v4: "10.0.0.0/16 24 10.0.1.0 10.0.255.0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := lease.ParseNetworkConfig([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := words(c.EnableIPv4, c.Network, c.SubnetLen, c.SubnetMin, c.SubnetMax); got != tt.v4 {
				t.Errorf("IPv4 %q, want %q", got, tt.v4)
			}
			if got := words(c.EnableIPv6, c.IPv6Network, c.IPv6SubnetLen, c.IPv6SubnetMin, c.IPv6SubnetMax); got != tt.v6 {
				t.Errorf("IPv6 %q, want %q", got, tt.v6)
			}
			if c.BackendType != tt.backend {
				t.Errorf("backend %q, want %q", c.BackendType, tt.backend)
			}
			roundTrip(t, c)
		})
	}
}

func roundTrip(t *testing.T, c lease.NetworkConfig) {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := lease.ParseNetworkConfig(b)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	if !again.Equal(c) || again.BackendType != c.BackendType {
		t.Errorf("%s reads back as %+v, want %+v", b, again, c)
	}
}

func TestParseNetworkConfigFaults(t *testing.T) {
	tests := []struct {
		name, in string
		keys     string // at fault, in order
	}{
		{"empty", ``, "-"},
		{"null", `null`, "-"},
		{"array", `[]`, "-"},
		{"trailing garbage", `{"Network":"10.0.0.0/16"} x`, "-"},
		{"second object", `{"Network":"10.0.0.0/16"}{}`, "-"},
		{"no network", `{}`, "Network"},
		{"whole address space", `{"Network":"0.0.0.0/0"}`, "Network"},
		{"IPv6 in Network", `{"Network":"fd00::/48"}`, "Network"},
		{"IPv4 in IPv6Network", `{"Network":"10.0.0.0/16","EnableIPv6":true,"IPv6Network":"10.0.0.0/16"}`,
			"IPv6Network"},
		{"mapped address", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"::ffff:10.0.0.0/112"}`,
			"IPv6Network"},
		{"Network null", `{"Network":null}`, "Network"},
		{"both off", `{"EnableIPv4":false}`, "EnableIPv4"},
		{"flag is no flag", `{"Network":"10.0.0.0/16","EnableNFTables":"yes"}`, "EnableNFTables"},
		{"network too small", `{"Network":"10.0.0.0/29"}`, "Network"},
		{"v6 network too small", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/125"}`,
			"IPv6Network"},
		{"length 31", `{"Network":"10.0.0.0/16","SubnetLen":31}`, "SubnetLen"},
		{"length 127", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/64","IPv6SubnetLen":127}`,
			"IPv6SubnetLen"},
		{"fewer than four", `{"Network":"10.0.0.0/16","SubnetLen":17}`, "SubnetLen"},
		{"negative", `{"Network":"10.0.0.0/16","SubnetLen":-1}`, "SubnetLen"},
		{"min outside", `{"Network":"10.0.0.0/16","SubnetMin":"10.1.0.0"}`, "SubnetMin"},
		{"max off boundary", `{"Network":"10.0.0.0/16","SubnetMax":"10.0.9.1"}`, "SubnetMax"},
		{"min above max", `{"Network":"10.0.0.0/16","SubnetMin":"10.0.9.0","SubnetMax":"10.0.8.0"}`, "SubnetMin"},
		{"empty address", `{"Network":"10.0.0.0/16","SubnetMin":""}`, "SubnetMin"},
		{"backend null", `{"Network":"10.0.0.0/16","Backend":null}`, "Backend"},
		{"backend empty", `{"Network":"10.0.0.0/16","Backend":{}}`, "Backend"},
		{"backend text", `{"Network":"10.0.0.0/16","Backend":"vxlan"}`, "Backend"},
		{"length of the wrong type and no network", `{"SubnetLen":"24"}`, "SubnetLen Network"},
		{"length too long and no network", `{"SubnetLen":31}`, "Network SubnetLen"},
		{"length too short and a bad network", `{"Network":"x","SubnetLen":2}`, "Network SubnetLen"},
		{"length that some network has", `{"SubnetLen":30}`, "Network"},
		{"v6 length and no network", `{"EnableIPv4":false,"EnableIPv6":true,"IPv6SubnetLen":127}`,
			"IPv6Network IPv6SubnetLen"},
		{"range and no network", `{"SubnetMin":"10.0.9.0","SubnetMax":"10.0.8.0"}`, "Network SubnetMin"},
		{"bounds and no network", `{"SubnetLen":24,"SubnetMin":"10.0.8.1","SubnetMax":"10.0.9.1"}`,
			"Network SubnetMin SubnetMax"},
		{"whole address space and length", `{"Network":"0.0.0.0/0","SubnetLen":40}`, "Network SubnetLen"},
		{"all at once",
			`{"Network":"10.0.0.0/16","SubnetLen":40,"SubnetMin":"11.0.0.0","EnableIPv6":true,"IPv6Network":"x","Backend":{},"EnableNFTables":1}`,
			"EnableNFTables IPv6Network Backend SubnetLen SubnetMin"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := lease.ParseNetworkConfig([]byte(tt.in))
			var keys []string
			for _, f := range faults(err) {
				if f.Want == "" || f.Got == "" {
					t.Errorf("%v does not say what was found and what would be right", f)
				}
				keys = append(keys, cmp.Or(f.Key, "-"))
			}
			if got := strings.Join(keys, " "); got != tt.keys {
				t.Errorf("faults in %q, want %q\n%v", got, tt.keys, err)
			}
		})
	}
}

func faults(err error) []*lease.ConfigError {
	var out []*lease.ConfigError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			var f *lease.ConfigError
			if errors.As(e, &f) {
				out = append(out, f)
			}
		}
	}
	return out
}

func TestBackendAbsentIsSaidInTheError(t *testing.T) {
	_, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.0.0.0/16","Backend":{}}`))
	if err == nil || !strings.Contains(err.Error(), "Backend") {
		t.Errorf("got %v", err)
	}
}

func TestConfigEqual(t *testing.T) {
	base := `{"Network":"10.0.0.0/16","Backend":{"Type":"udp","Port":1}}`
	for in, want := range map[string]bool{
		`{"Network":"10.0.0.0/16","SubnetLen":24,"Backend":{"Type": "udp", "Port": 1}}`: true,
		`{"Network":"10.0.0.0/16","Backend":{"Type":"udp","Port":2}}`:                   false,
		`{"Network":"10.0.0.0/17","Backend":{"Type":"udp","Port":1}}`:                   false,
		`{"Network":"10.0.0.0/16"}`:                                                     false,
	} {
		if got := leasetest.Config(t, base).Equal(leasetest.Config(t, in)); got != want {
			t.Errorf("Equal(%s) = %v", in, got)
		}
	}
}

func FuzzParseNetworkConfig(f *testing.F) {
	for _, s := range []string{
		`{"Network":"10.0.0.0/16"}`,
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48","IPv6SubnetLen":60}`,
		`{"Network":"1.0.0.0/8","SubnetMin":"1.1.0.0","SubnetMax":"1.2.0.0","Backend":{"Type":"vxlan"}}`, `{`, `[]`,
		`null`, "{\"network\u0000\":1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := lease.ParseNetworkConfig(b)
		if err != nil {
			if len(faults(err)) == 0 {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		if slices.Contains([]bool{c.EnableIPv4, c.EnableIPv6}, true) {
			roundTrip(t, c)
		}
	})
}

func TestConfigNetworks(t *testing.T) {
	for in, want := range map[string]string{
		`{"Network":"10.5.0.0/16"}`: "[10.5.0.0/16]",
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:5::/48"}`:                        "[fd00:5::/48]",
		`{"EnableIPv4":true,"EnableIPv6":true,"Network":"10.5.0.0/16","IPv6Network":"fd00:5::/48"}`: "[10.5.0.0/16 fd00:5::/48]",
	} {
		c, err := lease.ParseNetworkConfig([]byte(in))
		if got := fmt.Sprint(c.Networks()); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
		}
	}
}

// BenchmarkNetworkConfigEqual compares what every observation of the store does: the same text, read twice.
func BenchmarkNetworkConfigEqual(b *testing.B) {
	text := []byte(
		`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan","VNI":7,"AllowedSources":["192.0.2.0/24"]}}`)
	c, err := lease.ParseNetworkConfig(text)
	if err != nil {
		b.Fatal(err)
	}
	d, err := lease.ParseNetworkConfig(text)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !c.Equal(d) {
			b.Fatal("not equal")
		}
	}
}

func words(on bool, values ...any) string {
	if !on {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(values...), "\n")
}

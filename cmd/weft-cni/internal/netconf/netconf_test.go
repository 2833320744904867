package netconf

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"weft/lease/subnetenv"
)

func TestParseRefuses(t *testing.T) {
	for conf, want := range map[string]string{
		`{`:                               "unexpected end",
		`[]`:                              "array",
		`{"delegate":"bridge"}`:           "delegate",
		`{"delegate":{"type":7}}`:         "delegate.type is 7",
		`{"delegate":{"type":null}}`:      "delegate.type",
		`{"delegate":{"type":""}}`:        "delegate.type",
		`{"delegate":{"type":"../x"}}`:    "delegate.type",
		`{"delegate":{"name":"x"}}`:       "must",
		`{"delegate":{"ipam":{}}}`:        "must",
		`{"ipam":{"type":{}}}`:            "ipam.type",
		`{"ipam":{"routes":{}}}`:          "ipam.routes",
		`{"ipam":{"routes":[{"dst":1}]}}`: "ipam.routes",
		`{"subnetFile":"subnet.env"}`:     "absolute",
		`{"dataDir":"../x"}`:              "absolute",
		`{"controlSocket":"x"}`:           "absolute",
		`{"gsoMaxSize":"much"}`:           "65536",
		`{"gsoMaxSize":16383}`:            "65536",
		`{"gsoMaxSize":65537}`:            "65536",
		`{"gsoMaxSize":-1}`:               "65536",
		`{"gsoMaxSize":20000.5}`:          "65536",
	} {
		if _, err := Parse([]byte(conf)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want something with %q", conf, err, want)
		}
	}
	_, err := Parse([]byte(`{"dataDir":"x","delegate":{"ipam":{},"name":1}}`))
	for _, all := range []string{"dataDir", `"ipam"`, `"name"`} {
		if err == nil || !strings.Contains(err.Error(), all) {
			t.Errorf("of several faults got %v, without %s", err, all)
		}
	}
}

func TestParseDefaults(t *testing.T) {
	c,
		err := Parse(
		[]byte(`{"name":"n","gsoMaxSize":"auto","cni.dev/attachments":[{"containerID":"a","ifname":"b"}]}`))
	if err != nil || c.SubnetFile != "/run/flannel/subnet.env" || c.DataDir != "/var/lib/cni/flannel" ||
		!c.GSOMaxSize.Auto || len(c.Valid) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	c,
		err = Parse(
		[]byte(
			`{"name":"n","gsoMaxSize":61564,"cni.dev/valid-attachments":[],"cni.dev/attachments":[{"containerID":"a"}]}`))
	if err != nil || c.GSOMaxSize.Bytes != 61564 || len(c.Valid) != 0 {
		t.Errorf("got %+v, %v", c, err)
	}
}

func parseEnv(text []byte) (Env, error) {
	f, err := subnetenv.Parse(text)
	return EnvOf(f), err
}

func TestEnvOf(t *testing.T) {
	for text, want := range map[string]string{
		env4:    "{[10.244.0.0/16] [10.244.3.0/24] 1450 true}",
		env6:    "{[fd42::/48] [fd42:0:0:3::/64] 1430 true}",
		envDual: "{[10.244.0.0/16 fd42::/48] [10.244.3.0/24 fd42:0:0:3::/64] 1450 false}",
		envList: "{[10.244.0.0/16 10.245.0.0/16] [10.244.3.0/24] 1450 true}",
		"# by hand\r\nexport FLANNEL_NETWORK=\"10.244.7.0/16\"\r\nFLANNEL_SUBNET='10.244.3.1/24'\r\nFLANNEL_MTU=1450\r\nFLANNEL_IPMASQ=true\r\nOTHER=1\r\n": "{[10.244.0.0/16] [10.244.3.0/24] 1450 true}",
	} {
		got, err := parseEnv([]byte(text))
		if fmt.Sprint(got) != want || err != nil {
			t.Errorf("%q:\ngot  %v, %v\nwant %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, " +
			"FLANNEL_IPV6_SUBNET, FLANNEL_MTU, FLANNEL_IPMASQ",
		"FLANNEL_MTU=1450\n": "missing FLANNEL_NETWORK, FLANNEL_IPV6_NETWORK, FLANNEL_SUBNET, " +
			"FLANNEL_IPV6_SUBNET, FLANNEL_IPMASQ",
		env4 + "FLANNEL_MTU=70000":                        "FLANNEL_MTU",
		env4 + "FLANNEL_MTU=":                             "FLANNEL_MTU",
		env4 + "FLANNEL_SUBNET=":                          "missing FLANNEL_SUBNET",
		env4 + "FLANNEL_NETWORK=x":                        "FLANNEL_NETWORK",
		env4 + "FLANNEL_NETWORK=fd00::/8":                 "address",
		env4 + "FLANNEL_IPV6_NETWORK=::ffff:1.2.3.0/120":  "FLANNEL_IPV6_NETWORK",
		env4 + "FLANNEL_SUBNET=10.244.3.1/24,10.1.1.1/24": "subnet",
		strings.Repeat("#", 64<<10+1):                     "65536",
	} {
		if got, err := parseEnv([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, %v, want something with %q", text, got, err, want)
		}
	}
}

// FuzzParse checks that, whatever the configuration and the subnet file, what is rendered is read back as it
// was.
func FuzzParse(f *testing.F) {
	f.Add(
		[]byte(
			`{"name":"cbr0","cniVersion":"0.3.1","type":"flannel","delegate":{"hairpinMode":true},"ipam":{"routes":[{"dst":"0.0.0.0/0"}]}}`), []byte(env4))
	f.Add([]byte(`{"name":"n","gsoMaxSize":"auto","dns":{},"args":[],"prevResult":1,"runtimeConfig":"\u2028<"}`),
		[]byte(envDual))
	f.Add([]byte(`{"name":"n","delegate":{"TYPE":"x","type":"y"}}`), []byte(envList))
	f.Fuzz(func(t *testing.T, conf, text []byte) {
		c, err := Parse(conf)
		if err != nil || c.Name == "" { // a nameless one does not get past the library
			return
		}
		env, err := parseEnv(text)
		if err != nil {
			return
		}
		if len(env.Networks) == 0 || len(env.Subnets) == 0 || len(env.Subnets) > 2 || env.MTU < 0 ||
			env.MTU > 65535 {
			t.Fatalf("accepted %+v", env)
		}
		d, err := c.Render(env)
		if err != nil {
			t.Fatalf("what Parse accepts is not rendered: %v", err)
		}
		back, err := ParseDelegate(d.Text())
		if err != nil {
			t.Fatalf("%s: %v", d.Text(), err)
		}
		if !bytes.Equal(back.Text(), d.Text()) || back.Type != d.Type || back.IPAMType != d.IPAMType ||
			back.Name != d.Name {
			t.Fatalf("%s is read back as %s", d.Text(), back.Text())
		}
	})
}

// FuzzParseDelegate reads state files, which may hold anything.
func FuzzParseDelegate(f *testing.F) {
	f.Add(
		[]byte(`{"name":"n","type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.3.0/24"}]]}}`))
	f.Add([]byte(`{"name":"n","type":"bridge","ipam":[]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDelegate(text)
		if err != nil {
			return
		}
		if d.Name == "" || d.Type == "" {
			t.Fatalf("accepted %q", text)
		}
		_ = d.Elsewhere(Env{})
		if _, err := ParseDelegate(d.WithVersion("1.0.0").WithPrevResult([]byte(`{}`)).Text()); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

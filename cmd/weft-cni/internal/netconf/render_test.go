package netconf

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const (
	env4    = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	env6    = "FLANNEL_IPV6_NETWORK=fd42::/48\nFLANNEL_IPV6_SUBNET=fd42:0:0:3::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\n"
	envDual = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_NETWORK=fd42::/48\nFLANNEL_IPV6_SUBNET=fd42:0:0:3::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"
	envList = "FLANNEL_NETWORK=10.244.0.0/16,10.245.0.0/16,10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=1\n"
)

// ipam4 is the ipam that host-local gets on a node with env4.
const ipam4 = `"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"10.244.0.0/16"}],"type":"host-local"}`

func TestRender(t *testing.T) {
	for _, c := range []struct{ name, conf, env, want string }{
		{"nothing but a name", `{"name":"n","type":"flannel"}`, env4,
			`{` + ipam4 + `,"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
		{"kube-flannel's",
			`{"name":"cbr0","cniVersion":"0.3.1","type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true}}`, env4,
			`{"cniVersion":"0.3.1","hairpinMode":true,` + ipam4 +
				`,"ipMasq":false,"isDefaultGateway":true,"isGateway":true,"mtu":1450,"name":"cbr0","type":"bridge"}`},
		{"IPv6", `{"name":"n","cniVersion":"1.0.0"}`, env6,
			`{"cniVersion":"1.0.0","ipam":{"ranges":[[{"subnet":"fd42:0:0:3::/64"}]],"routes":[{"dst":"fd42::/48"}],"type":"host-local"},"ipMasq":false,"isGateway":true,"mtu":1430,"name":"n","type":"bridge"}`},
		{"both families, no masquerade on the node", `{"name":"n"}`, envDual,
			`{"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}],[{"subnet":"fd42:0:0:3::/64"}]],"routes":[{"dst":"10.244.0.0/16"},{"dst":"fd42::/48"}],"type":"host-local"},"ipMasq":true,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
		{"a list of networks, and a masquerade that is another word for true", `{"name":"n"}`, envList,
			`{"ipam":{"ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"10.244.0.0/16"},{"dst":"10.245.0.0/16"}],"type":"host-local"},"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
		{"the delegate's keys win",
			`{"name":"n","delegate":{"mtu":9000,"ipMasq":true,"isGateway":false,"bridge":"br7"}}`, env4,
			`{"bridge":"br7",` + ipam4 + `,"ipMasq":true,"isGateway":false,"mtu":9000,"name":"n","type":"bridge"}`},
		{"a delegate that is no bridge", `{"name":"n","delegate":{"type":"macvlan","master":"eth1"}}`, env4,
			`{` + ipam4 + `,"ipMasq":false,"master":"eth1","mtu":1450,"name":"n","type":"macvlan"}`},
		{"ipam given",
			`{"name":"n","ipam":{"type":"whereabouts","dataDir":"/x","ranges":"replaced","routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","new":1}]}}`, env4,
			`{"ipam":{"dataDir":"/x","ranges":[[{"subnet":"10.244.3.0/24"}]],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","new":1},{"dst":"10.244.0.0/16"}],"type":"whereabouts"},"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
		{"what flannel's plugin drops",
			`{"name":"n","dns":{"nameservers":["10.0.0.10"]},"args":{"cni":{"a":1}},"prevResult":{"ips":[]},"runtimeConfig":{"mac":"02:00:00:00:00:01"}}`, env4,
			`{"args":{"cni":{"a":1}},"dns":{"nameservers":["10.0.0.10"]},` + ipam4 +
				`,"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","prevResult":{"ips":[]},"runtimeConfig":{"mac":"02:00:00:00:00:01"},"type":"bridge"}`},
		{"dns of the delegate's own", `{"name":"n","dns":{"domain":"a"},"delegate":{"dns":{"domain":"b"}}}`, env4,
			`{"dns":{"domain":"b"},` + ipam4 +
				`,"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
		{"large numbers stay", `{"name":"n","delegate":{"x":12345678901234567890,"y":1.0}}`, env4,
			`{` + ipam4 +
				`,"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge","x":12345678901234567890,"y":1.0}`},
		{"nulls",
			`{"name":"n","delegate":null,"ipam":null,"runtimeConfig":null,"prevResult":null,"gsoMaxSize":null}`, env4,
			`{` + ipam4 + `,"ipMasq":false,"isGateway":true,"mtu":1450,"name":"n","type":"bridge"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf, err := Parse([]byte(c.conf))
			if err != nil {
				t.Fatal(err)
			}
			env, err := parseEnv([]byte(c.env))
			if err != nil {
				t.Fatal(err)
			}
			d, err := conf.Render(env)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(d.Text()); got != sorted(t, c.want) {
				t.Errorf("got\n%s, want\n%s", got, c.want)
			}
			back, err := ParseDelegate(d.Text())
			if err != nil || !bytes.Equal(back.Text(), d.Text()) || back.Type != d.Type ||
				back.IPAMType != d.IPAMType || back.Name != d.Name || back.CNIVersion != d.CNIVersion {
				t.Errorf("read back: %+v, %v", back, err)
			}
			if old := back.Elsewhere(env); len(old) > 0 {
				t.Errorf("subnets %s are not the node's", old)
			}
		})
	}
}

// sorted puts the keys of an object in order, as the encoder does, and keeps numbers as they are.
func sorted(t *testing.T, text string) string {
	t.Helper()
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRenderingChangesNoConfig(t *testing.T) {
	conf, err := Parse([]byte(`{"name":"n","delegate":{"a":1},"ipam":{"b":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	d, err := conf.RenderStatus()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(d.Text()), `{"a":1,"ipam":{"b":2,"type":"host-local"},"name":"n","type":"bridge"}`; got != want {
		t.Errorf("without a subnet: got %s, want %s", got, want)
	}
	_ = d.WithKey("x", 1).WithVersion("1.0.0").WithPrevResult(json.RawMessage(`{}`))
	if again := string(d.Text()); strings.Contains(again, "prevResult") || len(conf.Delegate) != 1 ||
		len(conf.IPAM) != 1 {
		t.Errorf("changed: %s, %v", again, conf)
	}
}

func TestPodsOfAnEarlierSubnet(t *testing.T) {
	conf, err := Parse([]byte(`{"name":"n"}`))
	if err != nil {
		t.Fatal(err)
	}
	old, _ := parseEnv([]byte(envDual))
	d, err := conf.Render(old)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.ReplaceAll(env4, "10.244.3.1", "10.244.9.1"): "10.244.3.0/24",
		env4: "", // IPv6 was switched off: the addresses that are left are the node's
		strings.ReplaceAll(envDual, "0:0:3::", "0:0:4::"): "fd42:0:0:3::/64",
	} {
		env, err := parseEnv([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range d.Elsewhere(env) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("node with %q: got %q, want %q", text, got, want)
		}
	}
}

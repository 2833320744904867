package netconf

import (
	"strings"
	"testing"
)

func TestRenderDirect(t *testing.T) {
	for _, c := range []struct{ name, conf, env, want string }{
		{"kube-flannel's with the key",
			`{"name":"cbr0","cniVersion":"1.0.0","attach":"direct","controlSocket":"/s","delegate":{"hairpinMode":true,"isDefaultGateway":true}}`, env4,
			`{"attach":"direct","cniVersion":"1.0.0","controlSocket":"/s",` + ipam4 +
				`,"isDefaultGateway":true,"mtu":1450,"name":"cbr0","type":"host-local"}`},
		{"keys of its own",
			`{"name":"n","attach":"direct","controlSocket":"/s","delegate":{"mtu":1300,"type":"bridge","ipMasq":false},"dns":{"domain":"a"},"prevResult":{"ips":[]}}`, env4,
			`{"attach":"direct","controlSocket":"/s","dns":{"domain":"a"},` + ipam4 +
				`,"isDefaultGateway":false,"mtu":1300,"name":"n","prevResult":{"ips":[]},"type":"host-local"}`},
	} {
		conf, err := Parse([]byte(c.conf))
		if err != nil {
			t.Fatal(c.name, err)
		}
		env, err := parseEnv([]byte(c.env))
		if err != nil {
			t.Fatal(err)
		}
		d, err := conf.Render(env)
		if err != nil || string(d.Text()) != c.want {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", c.name, d.Text(), err, c.want)
		}
		back, err := ParseDelegate(d.Text())
		if direct, ok := back.Direct(); err != nil || !ok || direct.ControlSocket != "/s" || direct.MTU == 0 {
			t.Errorf("%s: read back as %+v, %v, %v", c.name, direct, ok, err)
		}
	}
	if d, err := ParseDelegate([]byte(`{"name":"n","type":"bridge"}`)); err != nil {
		t.Error(err)
	} else if _, ok := d.Direct(); ok {
		t.Error("a bridge's pod is taken for a direct one")
	}
	for conf, want := range map[string]string{
		`{"attach":"bridge"}`:                                        "direct",
		`{"attach":"direct","delegate":{"type":"macvlan"}}`:          "delegate.type",
		`{"attach":"direct","delegate":{"ipMasq":true}}`:             "--ip-masq",
		`{"attach":"direct","delegate":{"vlan":3}}`:                  "delegate.vlan",
		`{"attach":"direct","delegate":{"mtu":"x"}}`:                 "delegate.mtu",
		`{"attach":"direct","delegate":{"isDefaultGateway":"true"}}`: "delegate.isDefaultGateway",
	} {
		if _, err := Parse([]byte(conf)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", conf, err, want)
		}
	}
}

package routing

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/internal/wireguard"
	"weft/routing/underlay"
)

const testPSK = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="

func TestWithoutSecrets(t *testing.T) {
	config := `{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","pSk" : "` + testPSK + `","Port":1}}`
	got := string(WithoutSecrets([]byte(config)))
	if _, err := Parse([]byte(got)); err != nil || strings.Contains(got, testPSK[:10]) ||
		!strings.Contains(got, `"Port":1`) {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{`{"PSK":"` + testPSK, `{"PSK":"a\"b` + testPSK + `"`, `x "psk":"` +
		testPSK + `" y`} {
		if got := string(WithoutSecrets([]byte(bad))); strings.Contains(got, testPSK[:10]) {
			t.Errorf("%s", got)
		}
	}
	for _, name := range []string{`psk`, `\u0050SK`, `\u0070\u0053\u006b`, `P\u017fK`, "P\u017f\u212a",
		`PS\u212A`} {
		// each of which encoding/json reads as PSK
		config := `{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","` + name + `":"` + testPSK + `"}}`
		if got := string(WithoutSecrets([]byte(config))); strings.Contains(got, testPSK[:10]) {
			t.Errorf("%s", got)
		}
		if _, err := Parse([]byte(config)); err != nil {
			t.Errorf("%s: %v", config, err)
		}
	}
	for _, secret := range []string{`"pw":"hunter2"`, `"apiToken":["hunter2"]`,
		`"PreStartupCommand":"wg up --sig=hunter2"`, `"URL":"https://u:hunter2@192.0.2.1/?x=hunter2"`} {
		got := WithoutSecrets([]byte(`{"Network":"10.5.0.0/16",` + secret + `,"Backend":{"Type":"extension",` +
			secret + `}}`))
		if c, err := Parse(got); err != nil || c.BackendType != "extension" ||
			strings.Contains(string(got), "hunter2") {
			t.Errorf("%s, %v", got, err)
		}
	}
	if same := `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","PSK":""}}`; string(WithoutSecrets([]byte(same))) != same {
		t.Error("a text without a secret was changed")
	}
}

// TestWireGuardRecord has flannel's bytes, and takes what older ones and hostile ones publish.
func TestWireGuardRecord(t *testing.T) {
	k := wireguard.PublicKey{1}
	text := k.String()
	if got := string(wireGuardData(k, 51820)); got != `{"PublicKey":"`+text+`","Port":51820}` {
		t.Errorf("%s", got)
	}
	for data, want := range map[string]string{
		`{"PublicKey":"` + text + `","Port":7}`:      "{" + text + " 7}",
		`{"PublicKey":"` + text + `"}`:               "{" + text + " 0}",
		`{"PublicKey":"` + text + `","Port":70000}`:  "",
		`{"PublicKey":"` + text[:20] + `","Port":7}`: "",
		`null`: "", ``: "", `{}`: "", `5`: "",
		`{"VNI":1,"VtepMAC":"aa:bb:cc:dd:ee:ff"}`: "",
	} {
		key, port, err := parseWireGuardData([]byte(data))
		if got := fmt.Sprintf("{%v %d}", key, port); (err != nil) != (want == "") || err == nil && got != want {
			t.Errorf("%s: %s, %v, want %s", data, got, err, want)
		}
	}
}

// TestWireGuardWants is the pure part: devices, routes, peers and reasons.
func TestWireGuardWants(t *testing.T) {
	k := func(n byte) wireguard.PublicKey { return wireguard.PublicKey{n} }
	record := func(n byte, edit ...func(*lease.Record)) lease.Record {
		r := vxlanPeer(int(n))
		r.BackendType, r.BackendData, r.BackendV6Data = "wireguard", wireGuardData(k(n), 51820),
			wireGuardData(k(n), 51821)
		for _, e := range edit {
			e(&r)
		}
		return r
	}
	addr := netip.MustParseAddr
	config := lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6}
	under := underlay.Link{Name: "eth0", MTU: 1500, Addr4: addr("192.0.2.1"), Addr6: addr("2001:db8::1")}
	want := func(mode string, u underlay.Link, peers ...lease.Record) desired {
		w := newWireGuard(config)
		w.Mode, w.ListenPort, w.ListenPortV6 = mode, DefaultWireGuardPort, DefaultWireGuardPort6
		w.public = func() wireguard.PublicKey { return k(1) }
		return w.want(situation{set: lease.Set{Config: config, Own: record(1), Peers: peers}, under: u, mtu: 1420,
			outer: 1500})
	}
	say := func(d desired) string {
		var b strings.Builder
		for _, v := range d.driven.([]wireGuardDevice) {
			_, _ = fmt.Fprintf(&b, "%s:%d", v.name, v.Port)
			for _, p := range v.Peers {
				_, _ = fmt.Fprintf(&b, " %d@%v%v", p.Key[0], p.Endpoint, p.AllowedIPs)
			}
			b.WriteString("; ")
		}
		for _, r := range d.reached(true) {
			if r.How == HowSkipped {
				_, _ = fmt.Fprintf(&b, "without %v; ", r.Subnet)
			}
		}
		return b.String()
	}
	private := func(r *lease.Record) { r.PublicIP = addr("10.9.0.2") }
	for _, c := range []struct{ what, got, want string }{
		{"separate", say(want(modeSeparate, under, record(2))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24]; flannel-wg-v6:51821 " +
				"2@[2001:db8::2]:51821[fd00:5:0:2::/64]; "},
		{"auto", say(want(modeAuto, under, record(2))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24 fd00:5:0:2::/64]; "},
		{"auto, private", say(want(modeAuto, under, record(2, private))),
			"flannel-wg:51820 2@[2001:db8::2]:51821[10.5.2.0/24 fd00:5:0:2::/64]; "},
		{"ipv6", say(want(mode6, under, record(2))),
			"flannel-wg:51820 2@[2001:db8::2]:51821[10.5.2.0/24 fd00:5:0:2::/64]; "},
		{"no port", say(want(mode4, under, record(2, func(r *lease.Record) {
			r.BackendData = []byte(`{"PublicKey":"` + k(2).String() + `"}`)
		}))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24 fd00:5:0:2::/64]; "},
		{"our key", say(want(mode4, under, record(2, func(r *lease.Record) {
			r.BackendData, r.BackendV6Data = wireGuardData(k(1), 1), nil
		}))),
			"flannel-wg:51820; without 10.5.2.0/24; without fd00:5:0:2::/64; "},
		{"one key twice", say(want(mode4, under, record(2),
			record(3, func(r *lease.Record) {
				r.BackendData, r.BackendV6Data = wireGuardData(k(2), 1),
					wireGuardData(k(2), 1)
			}))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24 fd00:5:0:2::/64]; " +
				"without 10.5.3.0/24; without fd00:5:0:3::/64; "},
		{"two keys", say(want(mode4, under, record(2, func(r *lease.Record) {
			r.BackendV6Data = wireGuardData(k(7), 1)
		}))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24]; without fd00:5:0:2::/64; "},
		{"another type", say(want(mode4, under, vxlanPeer(2))),
			"flannel-wg:51820; without 10.5.2.0/24; without fd00:5:0:2::/64; "},
		{"no IPv6 outside", say(want(modeSeparate, underlay.Link{Name: "eth0", MTU: 1500, Addr4: under.Addr4},
			record(2))),
			"flannel-wg:51820 2@192.0.2.2:51820[10.5.2.0/24]; without fd00:5:0:2::/64; "},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, c.got, c.want)
		}
	}
	small := want(modeSeparate, under, record(2, func(r *lease.Record) { r.Weft = &lease.Weft{MTU: 1400} }))
	var routes []string
	for _, r := range small.Routes {
		routes = append(routes, fmt.Sprintf("%v via %v mtu %d", r, r.Gateway, r.MTU))
	}
	if got := strings.Join(routes, "; "); got !=
		"10.5.0.0/16 dev flannel-wg via invalid IP mtu 0; fd00:5::/48 dev flannel-wg-v6 via fe80::1 mtu 0; "+
			"10.5.2.0/24 dev flannel-wg via invalid IP mtu 1400; fd00:5:0:2::/64 dev flannel-wg-v6 via fe80::1 mtu "+
			"1400" {
		t.Error(got)
	}
}

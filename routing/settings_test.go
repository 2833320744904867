package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft/lease"
	"weft/routing/underlay"
)

// set lists the keys of a network's settings that differ from what they are without one in the text.
func set(n Network) string {
	var out []string
	for _, k := range keysOf(n.settings) {
		now := shown(k.value)
		if p, ok := k.value.Interface().(macPrefix); ok && p.bytes != nil {
			now = fmt.Sprintf("%x", *p.bytes)
		}
		k.reset()
		if shown(k.value) != now && now != "{<nil>}" {
			out = append(out, k.name+"="+now)
		}
	}
	return strings.Join(out, " ")
}

// TestSettings has every key of the types with keys of their own, in any case, and what counts as none.
func TestSettings(t *testing.T) {
	const none = `,"Port":null,"Path":null,"SourceCheck":null,"AllowedSources":null,"MTU":null`
	for backend, want := range map[string]string{
		`"Type":"udp"`:        "",
		`"Type":"udp"` + none: "",
		`"Type":"udp","port":9000,"path":"Auto","sourcecheck":"OFF","unknown":[],"RxUDPGROForwarding":"Off"`: `Port=9000 RxUDPGROForwarding="off" SourceCheck="off"`,
		`"Type":"udp","Path":"portable","SourceCheck":"outer","AllowedSources":["192.0.2.7/24","2001:db8::/32"],"MTU":1400`: `Path="portable" ` +
			`SourceCheck="outer" AllowedSources=[192.0.2.0/24 2001:db8::/32] MTU=1400`,
		`"type":"VXLAN","vni":4096,"PORT":4789,"MTU":1400,"GBP":true,"Learning":true,"DirectRouting":true,"MacPrefix":"0E-2A","Userspace":"Never"`: `VNI=4096 ` +
			`Port=4789 MTU=1400 GBP=true Learning=true DirectRouting=true Userspace="never" MacPrefix=0e2a`,
		`"Type":"vxlan","MacPrefix":""`: "",
		`"Type":"wireguard","listenport":7,"ListenPortV6":8,"PSK":"` + testPSK +
			`","PersistentKeepaliveInterval":25,"Mode":"AUTO","Userspace":"always","MTU":1400`: `ListenPort=7 ` +
			`ListenPortV6=8 MTU=1400 PersistentKeepaliveInterval=25 Mode="auto" Userspace="always"`,
		`"Type":"wireguard","ListenPort":51821,"Mode":"auto","PSK":""`: `ListenPort=51821 Mode="auto"`,
		`"Type":"route-hook","Interval":30`:                            "Interval=30",
		`"Type":"auto","VNI":7`:                                        "VNI=7",
		`"Type":"auto","ListenPort":7,"encrypt":"Always"`:              `ListenPort=7 Encrypt="always"`,
	} {
		n, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{` + backend + `}}`))
		if err != nil {
			t.Errorf("%s: %v", backend, err)
			continue
		}
		if w, ok := n.settings.(*wireGuard); ok && w.PSK.IsZero() == strings.Contains(backend, testPSK) {
			t.Errorf("%s: the key is %v", backend, w.PSK)
		}
		if u, ok := n.settings.(*udp); ok && u.DisableOffloads.set != 0 {
			t.Errorf("%s: %v", backend, u.DisableOffloads)
		}
		if got := set(n); got != want {
			t.Errorf("%s:\n got %s\nwant %s", backend, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`"Type":"udp","Port":1,"MTU":1500`, `"AllowedSources":["::/0"]`, `"Path":"auto"`,
		`"type":"vxlan","port":1,"PORT":2`, `"Type":"auto","Encrypt":null`} {
		f.Add(`{"Network":"10.5.0.0/16","Backend":{` + s + `}}`)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := Parse([]byte(text))
		if err != nil && !errors.As(err, new(*lease.ConfigError)) {
			t.Fatalf("undocumented error %v", err)
		}
		if u, ok := n.settings.(*udp); ok && (u.Port == 0 || u.Path == "" || u.check() == 0 || u.MTU != 0 &&
			u.MTU < minMTU4) {
			t.Fatalf("accepted %+v", u)
		}
	})
}

// TestMTU has flannel's sizes, and the smallest underlay that each type works over.
func TestMTU(t *testing.T) {
	const six = `"EnableIPv6":true,"IPv6Network":"fd00:5::/48",`
	four, both, only6 := underlay.Link{Addr4: addr("192.0.2.1")}, underlay.Link{Addr4: addr("192.0.2.1"),
		Addr6: addr("2001:db8::1")}, underlay.Link{Addr6: addr("2001:db8::1")}
	for _, c := range []struct {
		families, backend string
		under             underlay.Link
		mtu, want         int // what it is beside an error is the negative
	}{
		{"", `"udp"`, four, 1500, 1472}, {six, `"udp"`, only6, 1500, 1452},
		{"", `"udp","MTU":9000`, four, 1400, 1372}, {six, `"udp","MTU":1400`, four, 1500, 1372},
		{six, `"udp"`, four, 1308, 1280}, {six, `"udp"`, four, 1307, -1279}, {six, `"udp"`, only6, 1327, -1279},
		{"", `"udp"`, four, 576, 548}, {"", `"udp"`, four, 575, -547},
		{"", `"vxlan"`, four, 1500, 1450}, {six, `"vxlan"`, both, 1500, 1430}, {six, `"vxlan"`, both, 1340, -1290},
		{"", `"ipip"`, four, 1500, 1480}, {"", `"ipip"`, four, 595, 575}, {"", `"ipip"`, four, 575, -555},
		{"", `"ipip"`, only6, 1500, -1480},
		{"", `"wireguard"`, four, 1500, 1420}, {six, `"wireguard"`, both, 1359, -1279},
		{"", `"host-gw"`, four, 1500, 1500}, {"", `"alloc","MTU":1400`, four, 1500, 1400},
	} {
		n, err := Parse([]byte(`{"Network":"10.5.0.0/16",` + c.families + `"Backend":{"Type":` + c.backend + `}}`))
		if err != nil {
			t.Errorf("%s: %v", c.backend, err)
			continue
		}
		c.under.MTU = c.mtu
		got, err := n.MTU(c.under)
		if err != nil {
			got = -got
		}
		if got != c.want {
			t.Errorf("%s over %d: %d, %v, want %d", c.backend, c.mtu, got, err, c.want)
		}
	}
}

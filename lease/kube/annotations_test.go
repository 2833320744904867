package kube

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/lease"
)

func TestPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, key, fault string }{
		{"", "flannel.alpha.coreos.com/public-ip", ""},
		{"flannel.alpha.coreos.com", "flannel.alpha.coreos.com/public-ip", ""},
		{"flannel.alpha.coreos.com/", "flannel.alpha.coreos.com/public-ip", ""},
		{"flannel.alpha.coreos.com/blue", "flannel.alpha.coreos.com/blue-public-ip", ""},
		{"flannel.alpha.coreos.com/blue-", "flannel.alpha.coreos.com/blue-public-ip", ""},
		{"a.b/c_d-e", "a.b/c_d-e-public-ip", ""},
		{"a.b/c/d", "", "slash"},
		{"a.b//", "", "slash"},
		{"example", "", "domain"},
		{"example/x", "", "domain"},
		{"/x", "", "domain"},
		{"Example.com", "", "domain"},
		{"a.b/x.y", "", "domain"},
		{"a..b", "", "domain"},
		{"a.b c", "", "domain"},
		{"a.b/" + strings.Repeat("x", 64), "", "domain"},
		{strings.Repeat("a.", 200) + "b", "", "domain"},
	} {
		k, err := newKeys(c.prefix)
		if c.fault == "" && (err != nil || k.public != c.key) {
			t.Errorf("%q: %q, %v, want %q", c.prefix, k.public, err, c.key)
		}
		if c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: %v, want %q", c.prefix, err, c.fault)
		}
	}
}

// TestEncode is flannel's AcquireLease: which keys a node of each kind writes.
func TestEncode(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	vtep := json.RawMessage(`{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)
	const mac = `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`
	for _, c := range []struct {
		name string
		in   lease.Attrs
		want map[string]string
	}{
		{"vxlan", lease.Attrs{PublicIP: v4, BackendType: "vxlan", BackendData: vtep},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": mac,
				"public-ip": "192.0.2.1"}},
		{"vxlan of both families", lease.Attrs{PublicIP: v4, PublicIPv6: v6, BackendType: "vxlan",
			BackendData: vtep, BackendV6Data: vtep},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": mac,
				"public-ip": "192.0.2.1", "backend-v6-data": mac, "public-ipv6": "2001:db8::1"}},
		{"vxlan of IPv6", lease.Attrs{PublicIPv6: v6, BackendType: "vxlan", BackendV6Data: vtep},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-v6-data": mac,
				"public-ipv6": "2001:db8::1"}},
		{"vxlan of IPv4 with an IPv6 address", lease.Attrs{PublicIP: v4, PublicIPv6: v6, BackendType: "vxlan",
			BackendData: vtep},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "vxlan", "backend-data": mac,
				"public-ip": "192.0.2.1"}},
		{"host-gw", lease.Attrs{PublicIP: v4, BackendType: "host-gw"},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "host-gw", "backend-data": "null",
				"public-ip": "192.0.2.1"}},
		{"host-gw of both families", lease.Attrs{PublicIP: v4, PublicIPv6: v6, BackendType: "host-gw"},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "host-gw", "backend-data": "null",
				"public-ip": "192.0.2.1", "backend-v6-data": "null", "public-ipv6": "2001:db8::1"}},
		{"host-gw of IPv6", lease.Attrs{PublicIPv6: v6, BackendType: "host-gw"},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "host-gw", "backend-data": "null",
				"public-ip": "0.0.0.0", "backend-v6-data": "null", "public-ipv6": "2001:db8::1"}},
		{"wireguard without IPv6 data", lease.Attrs{PublicIP: v4, PublicIPv6: v6, BackendType: "wireguard",
			BackendData: vtep},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "wireguard", "backend-data": mac,
				"public-ip": "192.0.2.1"}},
		{"udp", lease.Attrs{PublicIP: v4, Weft: &lease.Weft{Node: "a"}},
			map[string]string{"kube-subnet-manager": "true", "backend-type": "", "backend-data": " null",
				"public-ip": "192.0.2.1", "weft": `{"Node":"a","Of":"898fbbee3f0eeb33"}`}},
	} {
		k, err := newKeys("a.b")
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.encode(c.in, backendOf(c.in.BackendType))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for name, value := range c.want {
			want["a.b/"+name] = value
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		back, err := k.decode(got)
		again, errAgain := k.encode(back, backendOf(back.BackendType))
		if err != nil || errAgain != nil {
			t.Fatalf("%s: %v, %v", c.name, err, errAgain)
		}
		if d := cmp.Diff(got, again); d != "" {
			t.Errorf("%s: not what it was: %s", c.name, d)
		}
	}
	k, _ := newKeys("a.b")
	if _, err := k.encode(lease.Attrs{PublicIP: v4, BackendData: json.RawMessage("{")}, Backend{}); err == nil {
		t.Error("data that is not JSON was encoded")
	}
}

// backendOf is what routing says of the types that these tests have, and of wireguard as flannel has it.
func backendOf(backendType string) Backend {
	switch backendType {
	case "vxlan":
		return Backend{DataV4: true, DataV6: true}
	case "wireguard":
		return Backend{DataV6: true}
	case "alloc":
		return Backend{Alone: true}
	}
	return Backend{}
}

func TestAdministratorsAddresses(t *testing.T) {
	k, err := newKeys("")
	if err != nil {
		t.Fatal(err)
	}
	v4, v6, err := k.nodePublic(map[string]string{DefaultPrefix + "/node-public-ip": "192.0.2.7", DefaultPrefix +
		"/node-public-ipv6": "2001:db8::7"})
	if err != nil || v4.String() != "192.0.2.7" || v6.String() != "2001:db8::7" {
		t.Errorf("%s %s %v", v4, v6, err)
	}
	for _, bad := range []string{"x", "2001:db8::7", "192.0.2.7/24", "::ffff:192.0.2.7", " 192.0.2.7"} {
		if _, _, err := k.nodePublic(map[string]string{DefaultPrefix + "/node-public-ip": bad}); !errors.Is(err,
			ErrAnnotation) || !strings.Contains(err.Error(), "node-public-ip") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzDecode gives a Node's annotations to the decoder: an error is ErrAnnotation, and what it
// reads it writes, and reads again as the same.
func FuzzDecode(f *testing.F) {
	f.Add("vxlan", `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`, "null", "192.0.2.1", "",
		`{"Node":"a","Recv":["gso"],"MTU":1450,"Addrs":["192.0.2.9"]}`)
	f.Add("vxlan", "null", `{"VNI":1}`, "", "2001:db8::1", "")
	f.Add("", "null", "", "0.0.0.0", "::", "null")
	f.Add("host-gw", "", "", "::1", "192.0.2.1", "{}")
	f.Add("x", "[1,", " null ", "fe80::1%eth0", "::ffff:1.2.3.4", `{"Node":"../../etc"}`)
	k, err := newKeys("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind, data, v6data, public, publicV6, weft string) {
		in := map[string]string{k.managed: "true", k.backendType: kind, k.data: data, k.v6data: v6data,
			k.public: public, k.publicV6: publicV6}
		if weft != "" {
			in[k.weft] = weft
		}
		a, err := k.decode(in)
		if err != nil {
			if !errors.Is(err, ErrAnnotation) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		if a.PublicIP.IsValid() && !a.PublicIP.Is4() || a.PublicIPv6.IsValid() && !isIPv6(a.PublicIPv6) {
			t.Fatalf("addresses %s and %s", a.PublicIP, a.PublicIPv6)
		}
		out, err := k.encode(a, backendOf(a.BackendType))
		if err != nil {
			t.Fatalf("%+v does not encode: %v", a, err)
		}
		b, err := k.decode(out)
		if err != nil {
			t.Fatalf("%q does not decode: %v", out, err)
		}
		again, err := k.encode(b, backendOf(b.BackendType))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(out, again); d != "" {
			t.Fatal(d)
		}
	})
}

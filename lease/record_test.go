package lease_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"weft/lease"
	"weft/lease/leasetest"
)

func TestKey(t *testing.T) {
	for key, text := range map[string]string{
		"10.5.52.0-24":                     "10.5.52.0/24",
		"10.12.13.0-24&fd00:12:13::-56":    "10.12.13.0/24,fd00:12:13::/56",
		"0.0.0.0-0&fd00:12:13::-56":        "fd00:12:13::/56",
		"128.0.0.0-1":                      "128.0.0.0/1",
		"10.0.0.0-31&2001:db8:0:1::a0-127": "",
	} {
		s, err := lease.ParseKey(key)
		if err != nil && text != "" || err == nil && s.Key() != key {
			t.Errorf("ParseKey(%q) = %v, %v", key, s, err)
		}
		if text == "" {
			continue
		}
		if s.String() != text {
			t.Errorf("%q is %q, want %q", key, s, text)
		}
		if back, err := lease.ParseSubnets(text); err != nil || back != s {
			t.Errorf("ParseSubnets(%q) = %v, %v", text, back, err)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, key := range []string{
		"", "config", "10.5.52.0", "10.5.52.0/24", "10.5.52.0-", "10.5.52.0-24x", "10.5.52.0-24&", "10.5.52.7-24",
		"10.5.52.0-32", "10.5.52.0-0", "0.0.0.0-0", "10.5.52.0-024", "10.5.52.0-+24", "10.05.52.0-24",
		"10.5x52.0-24", "010.5.52.0-24",
		"fd00::-64", "10.5.52.0-24&fd00::-128", "10.5.52.0-24&FD00::-64", "10.5.52.0-24&fd00:0::-64",
		"10.5.52.0-24&fd00::1-64",
		"10.5.52.0-24&10.5.53.0-24", "fd00::-64&fd01::-64", "10.5.52.0-24&::ffff:10.0.0.0-104",
		"10.5.52.0-24&fe80::%eth0-64",
		"10.5.52.0-24&fd00::-64&fd01::-64", "0.0.0.0-0&", "x10.5.52.0-24", "10.5.52.0-24 ", "10.5.52.0-999",
	} {
		if s, err := lease.ParseKey(key); !errors.Is(err, lease.ErrKey) {
			t.Errorf("ParseKey(%q) = %v, %v, want ErrKey", key, s, err)
		}
	}
	if k := (lease.Subnets{}).Key(); k != "" {
		t.Errorf("the zero Subnets have key %q", k)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"10.5.52.0-24", "10.12.13.0-24&fd00:12:13::-56", "0.0.0.0-0&fd00::-64",
		"10.0.0.0-8&", "&"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		s, err := lease.ParseKey(key)
		if err != nil {
			if !errors.Is(err, lease.ErrKey) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		if s.Key() != key || s.V4 != s.V4.Masked() || s.V6 != s.V6.Masked() {
			t.Fatalf("%q reads as %v, which is written %q", key, s, s.Key())
		}
	})
}

// The values that flannel v0.28.9 writes, and ours with the one object more.
func TestAttrsGolden(t *testing.T) {
	ip := netip.MustParseAddr("192.168.64.3")
	tests := map[string]struct {
		attrs lease.Attrs
		want  string
	}{
		"flannel vxlan": {
			lease.Attrs{PublicIP: ip, BackendType: "vxlan",
				BackendData: json.RawMessage(`{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}`)},
			`{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}`,
		},
		"flannel udp": {lease.Attrs{PublicIP: ip}, `{"PublicIP":"192.168.64.3","PublicIPv6":null}`},
		"dual stack": {
			lease.Attrs{
				PublicIP: ip, PublicIPv6: netip.MustParseAddr("2001:db8::3"), BackendType: "vxlan",
				BackendData: json.RawMessage(`{"VNI":1}`), BackendV6Data: json.RawMessage(`{"VNI":1,"VtepMAC":"a"}`),
			},
			`{"PublicIP":"192.168.64.3","PublicIPv6":"2001:db8::3","BackendType":"vxlan","BackendData":{"VNI":1},"BackendV6Data":{"VNI":1,"VtepMAC":"a"}}`,
		},
		"only IPv6": {lease.Attrs{PublicIPv6: netip.MustParseAddr("2001:db8::3")},
			`{"PublicIP":"0.0.0.0","PublicIPv6":"2001:db8::3"}`},
		"weft": {
			lease.Attrs{PublicIP: ip, Weft: &lease.Weft{Node: "n1", Recv: []string{"gso", "pcsum"}, MTU: 1450,
				Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}},
			`{"PublicIP":"192.168.64.3","PublicIPv6":null,"Weft":{"Node":"n1","Recv":["gso","pcsum"],"MTU":1450,"Addrs":["192.0.2.9"]}}`,
		},
		"weft, with a name": {
			lease.Attrs{PublicIP: ip, Weft: &lease.Weft{Node: "n1", Name: "db-1.example", MTU: 1450}},
			`{"PublicIP":"192.168.64.3","PublicIPv6":null,"Weft":{"Node":"n1","Name":"db-1.example","MTU":1450}}`,
		},
		"weft, little to say": {lease.Attrs{PublicIP: ip, Weft: &lease.Weft{Node: "n1"}},
			`{"PublicIP":"192.168.64.3","PublicIPv6":null,"Weft":{"Node":"n1"}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := lease.EncodeAttrs(tt.attrs)
			if err != nil || string(b) != tt.want {
				t.Fatalf("got  %s, %v\nwant %s", b, err, tt.want)
			}
			back, err := lease.DecodeAttrs(b)
			if err != nil || !reflect.DeepEqual(back, tt.attrs) {
				t.Errorf("reads back as %+v, %v", back, err)
			}
		})
	}
}

func TestDecodeAttrsTolerates(t *testing.T) {
	for in, want := range map[string]lease.Attrs{
		`{}`: {},
		`{"publicip":"192.0.2.1","Unknown":{"a":[1]}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1")},
		`{"PublicIP":"0.0.0.0","PublicIPv6":"::"}`: {},
		`{"PublicIP":"192.0.2.1","BackendData":null,"Weft":null}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1")},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Future":1}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n"}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":"a\u001b[2Jb"}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n"}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":"two words"}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n"}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":"` + strings.Repeat("x", 254) +
			`"}}`: {PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n"}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":7,"Probe":8286,"MTU":9}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n", Probe: 8286, MTU: 9}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":"a","Probe":"8286"}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n", Name: "a"}},
		`{"PublicIP":"192.0.2.1","Weft":{"Node":"n","Name":["a"],"Probe":1e99}}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), Weft: &lease.Weft{Node: "n"}},
		`{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"x","BackendData":[1,"two"]}`: {
			PublicIP: netip.MustParseAddr("192.0.2.1"), BackendType: "x", BackendData: json.RawMessage(`[1,"two"]`)},
	} {
		if got, err := lease.DecodeAttrs([]byte(in)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}

func TestDecodeAttrsRefuses(t *testing.T) {
	for _, in := range []string{
		``, `x`, `[]`, `"x"`, `{"PublicIP":""}`, `{"PublicIP":"fd00::1"}`, `{"PublicIP":1}`,
		`{"PublicIPv6":"192.0.2.1"}`, `{"PublicIPv6":""}`,
		`{"PublicIPv6":"fe80::1%eth0"}`, `{"PublicIPv6":"::ffff:192.0.2.1"}`, `{} {}`, `{"Weft":{}}`,
		`{"Weft":{"Node":"a b"}}`, `{"Weft":{"Node":"n","MTU":-1}}`,
		`{"Weft":{"Node":"n","Addrs":[""]}}`, `{"Weft":7}`, `{"BackendType":3}`, `{"BackendData":"` +
			strings.Repeat("x", 70000) + `"}`,
	} {
		if got, err := lease.DecodeAttrs([]byte(in)); !errors.Is(err, lease.ErrValue) {
			t.Errorf("%.60s: %+v, %v, want ErrValue", in, got, err)
		}
	}
	if _, err := lease.EncodeAttrs(lease.Attrs{BackendData: json.RawMessage(`{`)}); err == nil {
		t.Error("BackendData that is no JSON was written")
	}
}

func FuzzDecodeAttrs(f *testing.F) {
	for _, s := range []string{
		`{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1}}`,
		`{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::1","Weft":{"Node":"n","Recv":["gso"],"MTU":1,"Addrs":["::1"]}}`,
		`{}`, `null`, `{"BackendData": "<&>" }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := lease.DecodeAttrs(b)
		if err != nil {
			if !errors.Is(err, lease.ErrValue) {
				t.Fatalf("undocumented error %v", err)
			}
			return
		}
		out, err := lease.EncodeAttrs(a)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		again, err := lease.DecodeAttrs(out)
		if len(out) <= 64<<10 && (err != nil || !again.Equal(a)) {
			t.Fatalf("%s is written as %s, which reads as %+v, %v", b, out, again, err)
		}
	})
}

func TestRecordJSONKeepsEverything(t *testing.T) {
	r := leasetest.Record(t, "10.5.1.0/24", "n", "192.0.2.1", 7)
	r.Reservation, r.Created = true, 3
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back lease.Record
	if err := json.Unmarshal(b, &back); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%s reads back as %+v, %v", b, back, err)
	}
}

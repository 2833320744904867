package routing

import (
	"os"
	"path/filepath"
	"testing"

	"weft/routing/routehook"
	"weft/routing/underlay"
	"weft/test/netns"
)

// TestRecords has what a node of each type publishes, byte for byte: flannel's nodes and older ones of weft's
// read it.
func TestRecords(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(testPSK+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const wireGuard4 = `{"PublicKey":"B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=","Port":51820}`
	const wireGuard6 = `{"PublicKey":"B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=","Port":51821}`
	for backend, want := range map[string][3]string{
		`"Type":"udp"`: {"", "", ""},
		`"Type":"vxlan"`: {"vxlan", `{"VNI":1,"VtepMAC":"c2:46:fe:d4:f5:6d"}`,
			`{"VNI":1,"VtepMAC":"0a:3a:62:1e:53:04"}`},
		`"Type":"vxlan","VNI":7,"Port":4789`: {"vxlan", `{"VNI":7,"VtepMAC":"3a:6b:43:22:38:af"}`,
			`{"VNI":7,"VtepMAC":"52:f8:90:ec:b5:68"}`},
		`"Type":"vxlan","MacPrefix":"0E-2A"`: {"vxlan", `{"VNI":1,"VtepMAC":"0e:2a:fe:d4:f5:6d"}`,
			`{"VNI":1,"VtepMAC":"0e:2a:62:1e:53:04"}`},
		`"Type":"auto"`: {"vxlan", `{"VNI":1,"VtepMAC":"c2:46:fe:d4:f5:6d"}`,
			`{"VNI":1,"VtepMAC":"0a:3a:62:1e:53:04"}`},
		`"Type":"auto","Encrypt":"always"`:                   {"wireguard", wireGuard4, wireGuard6},
		`"Type":"host-gw"`:                                   {"host-gw", "", ""},
		`"Type":"wireguard"`:                                 {"wireguard", wireGuard4, wireGuard6},
		`"Type":"wireguard","Mode":"auto"`:                   {"wireguard", wireGuard4, wireGuard4},
		`"Type":"ipip"`:                                      {"ipip", "", ""},
		`"Type":"alloc"`:                                     {"", "", ""},
		`"Type":"extension"`:                                 {"extension", "", ""},
		`"Type":"extension","PreStartupCommand":"echo a\"b"`: {"extension", `"a\"b"`, ""},
		`"Type":"route-hook"`:                                {"route-hook", "", ""},
	} {
		families := `"EnableIPv6":true,"IPv6Network":"fd00:5::/48",`
		if backend == `"Type":"ipip"` {
			families = ""
		}
		network, err := Parse([]byte(`{"Network":"10.5.0.0/16",` + families + `"Backend":{` + backend + `}}`))
		if err != nil {
			t.Errorf("%s: %v", backend, err)
			continue
		}
		c := BackendConfig{
			Kernel: k, Network: network, Node: "a", KeyFile: key, MayRunCommands: func() error { return nil },
			Hook:            &routehook.Options{URL: "http://127.0.0.1:1/"},
			UnderlayOptions: underlay.Options{IPv4: true, IPv6: families != "", Interfaces: []string{"eth0"}},
		}
		if c.Underlay, err = underlay.Choose(k, c.UnderlayOptions); err != nil {
			t.Fatal(err)
		}
		b, err := NewNode(t.Context(), c)
		if err != nil {
			t.Errorf("%s: %v", backend, err)
			continue
		}
		data, v6data := b.Publish()
		if got := [3]string{b.RecordType(), string(data), string(v6data)}; got != want {
			t.Errorf("%s:\n got %q\nwant %q", backend, got, want)
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: %v", backend, err)
		}
	}
}

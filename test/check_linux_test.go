package test

import (
	"os"
	"testing"
)

// weftd --check says whether the kernel or weft would carry the packets, and leaves the host as it is.
func TestCheckSaysWhoCarries(t *testing.T) {
	n := shared(t, ipv4Only).Node(1)
	for backend, want := range map[string]string{
		`{"Type":"auto"}`:                       "tun-device, ok",
		`{"Type":"vxlan"}`:                      "kernel-feature, ok",
		`{"Type":"vxlan","Userspace":"never"}`:  "tun-device, ok",
		`{"Type":"host-gw"}`:                    "tun-device, ok",
		`{"Type":"vxlan","Userspace":"always"}`: "no faults",
	} {
		file := t.TempDir() + "/net-conf.json"
		if err := os.WriteFile(file, networkOf(backend, false), 0o600); err != nil {
			t.Fatal(err)
		}
		before := sh(t, n.Host, "ip -o link | cut -d' ' -f1-3; ip route")
		says(t, n.Host, 0, []string{want, "no faults"}, "--check", "--offline", "--net-config-path="+file, "--iface=eth0", "--cache-dir="+t.TempDir())
		if after := sh(t, n.Host, "ip -o link | cut -d' ' -f1-3; ip route"); after != before {
			t.Errorf("%s: before\n%sand after\n%s", backend, before, after)
		}
	}
}

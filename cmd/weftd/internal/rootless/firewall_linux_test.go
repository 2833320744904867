package rootless

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestFirewallsOfAHost(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, c := range []struct {
		what string
		host fstest.MapFS
		port int
		want string
	}{
		{"none", fstest.MapFS{}, 8285, "8285"},
		{"no port", fstest.MapFS{}, 0, "overlay's"},
		{"ufw off", fstest.MapFS{"etc/ufw/ufw.conf": file("# ENABLED=yes is on\nENABLED=no\n")}, 8285, "neither"},
		{"ufw on", fstest.MapFS{"etc/ufw/ufw.conf": file("ENABLED=yes\n")}, 8285, "8285/udp"},
		{"firewalld", fstest.MapFS{"run/firewalld/x": file("")}, 0, "--add-port=PORT/udp"},
	} {
		if got := firewalls(c.host, c.port); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q in it", c.what, got, c.want)
		}
	}
}

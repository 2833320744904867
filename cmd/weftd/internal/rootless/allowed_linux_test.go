package rootless

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestSubordinateIDs(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const all = "root:1:9\nada:100000:65536\n"
	for _, c := range []struct {
		what, name string
		uid, gid   string
		tool       bool
		want       string
	}{
		{"by name", "ada", all, all, true, "enough"},
		{"by number", "", "2001:100000:65536\n", "2001:100000:65536\n", true, "enough"},
		{"in two parts", "ada", "ada:1:65535\nada:100000:1\n", all, true, "enough"},
		{"no tool", "ada", all, all, false, "apt-get"},
		{"too few", "ada", "ada:100000:1000\n", all, true, "/etc/subuid"},
		{"of groups none", "ada", all, "bob:1:65536\n", true, "/etc/subgid"},
		{"malformed", "ada", "ada:100000\nada:1:x\n:::\n", all, true, "/etc/subuid"},
		{"a user without a name", "", ":1:65536\n", all, true, "/etc/subuid"},
	} {
		host := fstest.MapFS{"etc/subuid": file(c.uid), "etc/subgid": file(c.gid)}
		if got := subordinates(host, c.name, "2001", c.tool); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q in it", c.what, got, c.want)
		}
	}
	if got := subordinates(fstest.MapFS{}, "ada", "2001", true); !strings.Contains(got, "/etc/subgid") ||
		!strings.Contains(got, "usermod --add-subuids") {
		t.Errorf("without files: %s", got)
	}
}

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

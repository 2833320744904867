package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weft/cmd/internal/control"
)

// An ordinary user asks the own weftd, and root the host's, unless only the other is there.
func TestWhichWeftdIsAsked(t *testing.T) {
	t.Parallel()
	const hosts, own = "/run/weft/weftd.sock", "/run/user/7/weft/weftd.sock"
	env := func(name string) string {
		return map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/srv/u"}[name]
	}
	for _, tt := range []struct {
		uid   int
		there []string
		want  string
	}{
		{7, []string{hosts, own}, own}, {7, []string{own}, own}, {7, []string{hosts}, hosts}, {7, nil, own},
		{0, []string{hosts, own}, hosts}, {0, []string{own}, own}, {0, []string{hosts}, hosts}, {0, nil, hosts},
	} {
		there := func(path string) bool {
			for _, p := range tt.there {
				if p == path {
					return true
				}
			}
			return false
		}
		if got := defaultSocket(tt.uid, 7, hosts, env, there); got != tt.want {
			t.Errorf("user %d, with %q: %s, want %s", tt.uid, tt.there, got, tt.want)
		}
	}
}

// In the namespace of an ordinary user's weftd the user is root, and the own directory has another id in its
// name.
func TestIdsOutsideOfANamespace(t *testing.T) {
	t.Parallel()
	const all, one, podman = "         0          0 4294967295\n", "0 1000 1\n", "0 1000 1\n1 100000 65536\n"
	for _, tt := range []struct {
		uid  int
		m    string
		want int
	}{{0, all, 0}, {1000, all, 1000}, {0, one, 1000}, {5, one, 5}, {0, podman, 1000}, {1, podman, 100000},
		{65536, podman, 165535}, {65537, podman, 65537}, {3, "", 3}, {3, "a b c\n", 3}} {
		if got := outside(tt.uid, tt.m); got != tt.want {
			t.Errorf("%d in %q: %d, want %d", tt.uid, tt.m, got, tt.want)
		}
	}
	// Without XDG_RUNTIME_DIR the own socket is found by the id outside, where there is such a directory.
	dir := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	if _, err := os.Stat(dir); err != nil {
		dir = "/srv/u/.local/state/weft"
	}
	env := func(name string) string { return map[string]string{"HOME": "/srv/u"}[name] }
	if got := defaultSocket(0, os.Getuid(), "/run/weft/weftd.sock", env, func(path string) bool {
		return strings.HasPrefix(path, dir)
	}); !strings.HasPrefix(got, dir) {
		t.Errorf("%s is asked, want one in %s", got, dir)
	}
}

// Without root, addresses are reserved where the user's own weftd has its state.
func TestWhereAddressesAreReserved(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"HOME": "/root", "XDG_STATE_HOME": "/s"}, "/var/lib/cni/networks"},
		{7, map[string]string{"HOME": "/srv/u"}, "/srv/u/.local/state/weft/" + host + "/networks"},
		{7, map[string]string{"HOME": "/srv/u", "XDG_STATE_HOME": "/s"}, "/s/weft/" + host + "/networks"},
		{7, map[string]string{"HOME": "/srv/u", "XDG_STATE_HOME": "relative"}, "/srv/u/.local/state/weft/" + host +
			"/networks"},
		{7, nil, "/var/lib/cni/networks"},
		{0, map[string]string{"WEFT_RESERVATIONS": "/lab/node1/reservations"}, "/lab/node1/reservations"},
		{7, map[string]string{"WEFT_RESERVATIONS": "/lab/node1/reservations", "HOME": "/srv/u"},
			"/lab/node1/reservations"},
		{0, map[string]string{"WEFT_RESERVATIONS": "relative"}, "/var/lib/cni/networks"},
	} {
		if got := reservations(tt.uid, func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("user %d with %v: %s, want %s", tt.uid, tt.env, got, tt.want)
		}
	}
}

// weft status says where the TUN is, and how a program gets there.
func TestNamespaceLine(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]control.Namespace{
		"made by weftd, kept by process 7, without root: nsenter -t 7 -U -n --preserve-credentials COMMAND": {
			PID: 7, Own: true, Rootless: true, Enter: "nsenter -t 7 -U -n --preserve-credentials"},
		"of process 7, without root": {PID: 7, Rootless: true},
		"/run/netns/a: nsenter --net=/run/netns/a COMMAND": {Path: "/run/netns/a",
			Enter: "nsenter --net=/run/netns/a"},
	} {
		if got := namespaceLine(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// weft status says where packets go that are for no pod and no peer.
func TestWayOutLine(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]control.WayOut{
		"nowhere: the namespace has no default route, which slirp4netns or pasta give it": {Masquerade: true},
		"IPv4 by tap0, IPv6 nowhere": {IPv4: "tap0", Masquerade: true},
		"IPv6 by tap0, IPv4 nowhere": {IPv6: "tap0", Masquerade: true},
		"by eth0":                    {IPv4: "eth0", IPv6: "eth0", Masquerade: true},
		"IPv4 by tap0, IPv6 by tap1": {IPv4: "tap0", IPv6: "tap1", Masquerade: true},
		"by eth0; what pods send there gets no answer through slirp4netns or pasta without --ip-masq": {
			IPv4: "eth0", IPv6: "eth0"},
	} {
		if got := wayOutLine(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

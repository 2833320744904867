package main

import (
	"os"
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
		if got := defaultSocket(tt.uid, hosts, env, there); got != tt.want {
			t.Errorf("user %d, with %q: %s, want %s", tt.uid, tt.there, got, tt.want)
		}
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
		{7, map[string]string{"HOME": "/srv/u", "XDG_STATE_HOME": "relative"}, "/srv/u/.local/state/weft/" + host + "/networks"},
		{7, nil, "/var/lib/cni/networks"},
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
		"made by weftd, kept by process 7, without root: nsenter -t 7 -U -n --preserve-credentials COMMAND": {PID: 7, Own: true, Rootless: true, Enter: "nsenter -t 7 -U -n --preserve-credentials"},
		"of process 7, without root":                       {PID: 7, Rootless: true},
		"/run/netns/a: nsenter --net=/run/netns/a COMMAND": {Path: "/run/netns/a", Enter: "nsenter --net=/run/netns/a"},
	} {
		if got := namespaceLine(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

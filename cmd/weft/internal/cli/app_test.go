package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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

package options

import (
	"path/filepath"
	"strings"
	"testing"
)

// Without root, sockets, files and state are in the user's directories, unless somebody named others.
func TestFilesOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	c, err := Parse([]string{"--rootless", "--subnet-file=/srv/subnet.env"},
		[]string{"XDG_RUNTIME_DIR=/run/user/7", "XDG_STATE_HOME=/srv/u/state", "HOME=/srv/u"})
	if err != nil {
		t.Fatal(err)
	}
	if c.ControlSocket != "/run/user/7/weft/weftd.sock" || c.SubnetFile != "/srv/subnet.env" ||
		filepath.Dir(c.CacheDir) != "/srv/u/state/weft" || c.Embedded.Dir != filepath.Join(c.CacheDir, "etcd") {
		t.Errorf("%+v", c)
	}
	for _, s := range c.Settings {
		if want := map[string]string{"control-socket": "default (rootless, by XDG_RUNTIME_DIR)",
			"cache-dir": "default (rootless, by XDG_STATE_HOME)", "subnet-file": "flag",
			"iface": "default"}[s.Name]; want != "" && s.Source != want {
			t.Errorf("%s comes from %q, want %q", s.Name, s.Source, want)
		}
	}
	c, err = Parse(nil, []string{Inside + "=found", "HOME=/srv/u", UserID + "=4294967294"})
	if err != nil || !c.Rootless.On || c.Rootless.Given ||
		!strings.HasPrefix(c.CacheDir, "/srv/u/.local/state/weft/") ||
		c.ControlSocket != filepath.Join(c.CacheDir, "run", "weftd.sock") {
		t.Errorf("found by itself: %v %+v", err, c)
	}
	if c, err = Parse([]string{"--rootless=false"}, []string{Inside + "=found"}); err != nil || c.Rootless.On ||
		c.CacheDir != defaults().CacheDir {
		t.Errorf("forbidden: %v %+v", err, c)
	}
	if _, err = Parse([]string{"--rootless"}, nil); err == nil ||
		!strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Errorf("a user without directories: %v", err)
	}
	if _, err = Parse([]string{"--rootless", "--allow-extension"}, []string{"HOME=/srv/u"}); err == nil ||
		!strings.Contains(err.Error(), "--allow-extension") {
		t.Errorf("root's commands without root: %v", err)
	}
}

// What a command that failed has printed is no namespace, and not the wish for a new one.
func TestAnEmptyNamespaceIsNone(t *testing.T) {
	t.Parallel()
	if _, err := Parse([]string{"--rootless", "--tun-netns", ""}, []string{"HOME=/srv/u"}); err == nil ||
		!strings.Contains(err.Error(), "--tun-netns") {
		t.Errorf("an empty word: %v", err)
	}
	if _, err := Parse([]string{"--rootless"}, []string{"HOME=/srv/u", "WEFTD_TUN_NETNS="}); err != nil {
		t.Errorf("an empty line of an environment file, which is a default: %v", err)
	}
}

// Two users of a machine, and root, are three nodes.
func TestAUserIsAPartOfTheMachine(t *testing.T) {
	t.Parallel()
	root, a, b := Config{CacheDir: "/var/lib/weft"}, Config{CacheDir: "/srv/a"}, Config{CacheDir: "/srv/b"}
	a.Rootless.On, b.Rootless.On = true, true
	if root.IdentityPart() != "" || a.IdentityPart() == b.IdentityPart() || a.IdentityPart() == "" {
		t.Errorf("%q %q %q", root.IdentityPart(), a.IdentityPart(), b.IdentityPart())
	}
}

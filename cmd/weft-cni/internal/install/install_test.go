package install

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const conflist = `{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"},{"type":"portmap"}]}`

func TestInstall(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	conf, bin, to := filepath.Join(dir, "in"), filepath.Join(dir, "opt/cni/bin"),
		filepath.Join(dir, "etc/cni/net.d/10-flannel.conflist")
	if err := os.WriteFile(conf, []byte(conflist), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--bin-dir", bin, "--name", "flannel", "-name", "weft", "--conf", conf, "--conf-file", to}
	for range 2 { // the second replaces
		var out bytes.Buffer
		if err := Run(args, &out); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), "installed "+bin+"/flannel\ninstalled "+bin+"/weft\ninstalled "+to+
			"\n"; got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		text []byte
		mode os.FileMode
	}{bin + "/flannel": {self, 0o755}, bin + "/weft": {self, 0o755}, to: {[]byte(conflist), 0o644}} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want.text) {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want.mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	for _, d := range []string{bin, filepath.Dir(to)} {
		entries, err := os.ReadDir(d)
		if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			return strings.HasPrefix(e.Name(), ".")
		}) {
			t.Errorf("%s: %v, %v", d, entries, err)
		}
	}
}

func TestInstallRefuses(t *testing.T) {
	dir := t.TempDir()
	conf, bin, to := filepath.Join(dir, "in"), filepath.Join(dir, "bin"), filepath.Join(dir, "net.d/x.conflist")
	whole := []string{"--bin-dir", bin, "--conf", conf, "--conf-file", to}
	for _, c := range []struct {
		conf, want string
		args       []string
	}{
		{``, "unexpected end", whole},
		{`[]`, "array", whole},
		{`{"plugins":[{"type":"a"}]}`, `no "name"`, whole},
		{`{"name":"a"}`, "neither", whole},
		{`{"name":"a","plugins":[]}`, "empty", whole},
		{`{"name":"a","plugins":[{"type":"a"},{}]}`, "plugins[1]", whole},
		{strings.Repeat(" ", maxConf+1), "more than", whole},
		{conflist, "go together", []string{"--conf", conf}},
		{conflist, "go together", []string{"--conf-file", to}},
		{conflist, "such", []string{"--conf", conf + "x", "--conf-file", to}},
		{conflist, "name", []string{"--name", "../x"}},
		{conflist, "name", []string{"--name", ".."}},
		{conflist, "flags only", []string{"flannel"}},
		{conflist, "not defined", []string{"--wrong"}},
	} {
		if err := os.WriteFile(conf, []byte(c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Run(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.50q %q: got %v, want something with %q", c.conf, c.args, err, c.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a refused installation made %v, %v", entries, err)
	}
}

// A version that a plugin of the list, or one that weft calls, does not know is not offered to the runtime. A
// plugin that cannot be asked counts as one that knows no more than cniVersion. Everything else stays as it
// was written.
func TestVersionsThatPluginsLack(t *testing.T) {
	dir := t.TempDir()
	const newest = `[ $CNI_COMMAND = VERSION ] && ` +
		`echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}'`
	for name, script := range map[string]string{
		"old": `[ $CNI_COMMAND = VERSION ] && ` +
			`echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}'`,
		"new": newest, "bridge": newest, "host-local": newest, "broken": "exit 3",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ plugins, versions, want, said string }{
		{`{"type":"weft"}`, `["0.4.0","1.0.0","1.1.0"]`, `["0.4.0","1.0.0","1.1.0"]`, ""},
		{`{"type":"weft","delegate":{"type":"old"}}`, `["1.0.0","1.1.0"]`, `["1.0.0"]`, "plugin old"},
		{`{"type":"weft","ipam":{"type":"old"}}`, `["1.0.0","1.1.0"]`, `["1.0.0"]`, "plugin old"},
		{`{"type":"weft","attach":"direct","delegate":{"type":"old"}}`, `["1.1.0"]`, `["1.1.0"]`, ""},
		{`{"type":"weft"},{"type":"new"}`, `[ "0.4.0", "1.1.0" ]`, `[ "0.4.0", "1.1.0" ]`, ""},
		{`{"type":"new"},{"type":"old"}`, `[ "0.4.0", "1.1.0", "1.0.0" ]`, `["0.4.0","1.0.0"]`, "1.0.0"},
		{`{"type":"old"}`, `["1.1.0"]`, `[]`, "1.0.0"},
		{`{"type":"broken"}`, `["0.4.0","1.0.0","1.1.0"]`, `["0.4.0","1.0.0"]`, "1.0.0"},
		{`{"type":"none"}`, `["1.1.0","x"]`, `[]`, "1.0.0"},
	} {
		text := `{"cniVersion" : "1.0.0",  "cniVersions":%s ,"name":"a","plugins":[` + c.plugins +
			`],"more":{"cniVersions":["1.1.0"]}}` + "\n"
		conf, to := filepath.Join(dir, "conf"), filepath.Join(dir, "net.d/x.conflist")
		if err := os.WriteFile(conf, []byte(strings.Replace(text, "%s", c.versions, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Run([]string{"--bin-dir", dir, "--conf", conf, "--conf-file", to}, &out); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(to)
		if want := strings.Replace(text, "%s", c.want, 1); err != nil || string(got) != want ||
			!strings.Contains(out.String(), c.said) {
			t.Errorf("%s: %v\n got %swant %s%s", c.plugins, err, got, want, out.String())
		}
	}
}

func TestUsage(t *testing.T) {
	var out bytes.Buffer
	if err := Run([]string{"--help"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-bin-dir", "-name", "-conf ", "-conf-file"} {
		if !strings.Contains(out.String(), flag) {
			t.Errorf("usage lacks %s", flag)
		}
	}
}

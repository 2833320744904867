package image

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/netns"
)

// TestImages makes both images, from programs that are built once, and runs what is in them.
func TestImages(t *testing.T) {
	netns.Root(t, "only root can change into a root file system")
	bin := programs(t)
	made := func(stage string) Root {
		r, err := New(stage, repository, bin, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole, minimal := made("default"), made("minimal")
	t.Run("default has what flannel's has", func(t *testing.T) { hasWhatFlannelsHas(t, whole) })
	t.Run("minimal needs nothing else", func(t *testing.T) { needsNothingElse(t, minimal) })
	t.Run("plugins are asked", func(t *testing.T) { asksPlugins(t, whole, minimal) })
}

// programs returns the folder of weft's programs: $WEFT_BIN, which make test sets to what make build has just
// built, or one in which they are built as make build does.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("WEFT_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", dir+"/", "./cmd/weftd",
		"./cmd/weft-etcd", "./cmd/weft", "./cmd/weft-cni")
	cmd.Dir, cmd.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return dir
}

// output runs c to its end and returns all that it prints.
func output(t *testing.T, c Container) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.Run(ctx)
	return out.String(), err
}

// conflist is a network configuration in a folder of its own, as a ConfigMap is mounted.
func conflist(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text :=
		`{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"flannel"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	if err := os.WriteFile(filepath.Join(dir, "cni-conf.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func hasWhatFlannelsHas(t *testing.T, s Root) {
	bin, net, conf := t.TempDir(), t.TempDir(), conflist(t)
	mounts := []Mount{
		{Source: bin, Target: "/opt/cni/bin"}, {Source: net, Target: "/etc/cni/net.d"},
		{Source: conf, Target: "/etc/kube-flannel", ReadOnly: true},
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"/opt/bin/flanneld", "--version"}, "weftd "},
		{[]string{"/opt/bin/weftd", "--version"}, "weftd "},
		{[]string{"weft", "--version"}, "weft"},
		{[]string{"cp", "-f", "/flannel", "/opt/cni/bin/flannel"}, ""},
		{[]string{"/opt/cni/bin/flannel", "version"}, "weft-cni "},
		{[]string{"/opt/bin/install-conf", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-flannel.conflist"},
			""},
		// manifests from before install-conf do this
		{[]string{"cp", "-f", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-older.conflist"}, ""},
		{[]string{"/opt/bin/mk-docker-opts.sh", "-c", "-f", "/nowhere", "-d", "/dev/stdout"}, "DOCKER_OPTS=\"\"\n"},
		{[]string{"/bin/sh", "-c", "set -e -x; exec echo shell"}, "shell\n"},
		{[]string{"iptables", "--version"}, "(nf_tables)"},
		{[]string{"iptables-legacy-save", "--version"}, "(legacy)"},
		{[]string{"ip6tables-nft", "--version"}, "(nf_tables)"},
		{[]string{"ip6tables-legacy", "--version"}, "(legacy)"},
		{[]string{"iptables-nft-restore", "--version"}, "(nf_tables)"},
		{[]string{"nft", "--version"}, "nftables v"},
		{[]string{"ip", "-V"}, "iproute2"},
	} {
		out, err := output(t, s.container(mounts, c.args...))
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v: %v\n%swant %q", c.args, err, out, c.want)
		}
	}
	// Rules can be made with the capabilities that flannel's manifest has, since iptables' extensions are there.
	rule := []string{"-t", "nat", "-A", "POSTROUTING", "-s", "10.244.0.0/16", "!", "-d", "224.0.0.0/4", "-m",
		"comment", "--comment", "x", "-j", "MASQUERADE", "--random-fully"}
	c := s.container(nil, append([]string{"iptables-nft"}, rule...)...)
	c.Capabilities, c.Net = []string{"NET_ADMIN", "NET_RAW"}, netns.New(t, "image").FD()
	if out, err := output(t, c); err != nil {
		t.Errorf("iptables-nft: %v\n%s", err, out)
	}
	want, got := read(t, filepath.Join(conf, "cni-conf.json")),
		read(t, filepath.Join(net, "10-flannel.conflist"))
	if got != want {
		t.Errorf("installed %q, want %q", got, want)
	}
}

// asksPlugins installs the manifests' list beside Debian's plugins. The default image can run these, and the
// minimal one cannot, since it has no C library. With either, the list does not offer a version that they
// refuse.
func asksPlugins(t *testing.T, whole, minimal Root) {
	conf, err := filepath.Abs(filepath.Join(repository, "cmd/weftd/deploy/kubernetes/base"))
	if err != nil {
		t.Fatal(err)
	}
	for said, s := range map[string]Root{"plugin bridge knows 0.1.0": whole,
		"plugin bridge cannot be asked": minimal} {
		bin, net := t.TempDir(), t.TempDir()
		for _, name := range []string{"bridge", "host-local", "portmap"} {
			if err := copyFile(filepath.Join("/usr/lib/cni", name), filepath.Join(bin, name)); err != nil {
				t.Fatal(err)
			}
		}
		mounts := []Mount{{Source: bin, Target: "/host/opt/cni/bin"}, {Source: net, Target: "/host/etc/cni/net.d"},
			{Source: conf, Target: "/etc/kube-flannel", ReadOnly: true}}
		args := []string{"/opt/bin/weft-cni", "install", "--bin-dir=/host/opt/cni/bin",
			"--conf=/etc/kube-flannel/cni-conf.json", "--conf-file=/host/etc/cni/net.d/10-weft.conflist"}
		out, err := output(t, s.container(mounts, args...))
		if err != nil || !strings.Contains(out, said) {
			t.Errorf("%v: want %q in\n%s", err, said, out)
		}
		if got := read(t, filepath.Join(net, "10-weft.conflist")); !strings.Contains(got,
			`"cniVersions": ["0.4.0","1.0.0"]`) {
			t.Errorf("installed %s", got)
		}
	}
}

// container is a program in the image with these mounts.
func (r Root) container(mounts []Mount, args ...string) Container {
	return Container{Root: r.Dir, ReadOnly: true, Mounts: slices.Concat(r.Mounts, mounts), Args: args,
		Env: append(r.Env, "HOME=/")}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func needsNothingElse(t *testing.T, s Root) {
	bin, net, conf := t.TempDir(), t.TempDir(), conflist(t)
	mounts := []Mount{
		{Source: bin, Target: "/host/opt/cni/bin"}, {Source: net, Target: "/host/etc/cni/net.d"},
		{Source: conf, Target: "/etc/kube-flannel", ReadOnly: true},
	}
	for _, args := range [][]string{
		{"weftd", "--version"},
		{"weft", "--version"},
		{"/opt/bin/weft-cni", "install", "--bin-dir=/host/opt/cni/bin", "--conf=/etc/kube-flannel/cni-conf.json",
			"--conf-file=/host/etc/cni/net.d/10-weft.conflist"},
		{"/host/opt/cni/bin/weft", "version"},
	} {
		if out, err := output(t, s.container(mounts, args...)); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if got, want := read(t, filepath.Join(net, "10-weft.conflist")),
		read(t, filepath.Join(conf, "cni-conf.json")); got != want {
		t.Errorf("installed %q, want %q", got, want)
	}
}

package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/lab/netns"
)

// repository is the context of a build.
const repository = "../../../.."

// assembled is the root file system of one stage of the Dockerfile.
func assembled(t *testing.T, stage string) (string, Stage) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes root file systems and changes into them: run it as root (sudo make test)")
	}
	stages, err := Dockerfile(repository)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := stages[stage]
	if !ok {
		t.Fatalf("no stage %q", stage)
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin+"/", "./cmd/weftd", "./cmd/weft", "./cmd/weft-cni")
	cmd.Dir, cmd.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Assemble(s, Source{Context: repository, Binaries: bin}, root); err != nil {
		t.Fatal(err)
	}
	return root, s
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
	text := `{"name":"cbr0","cniVersion":"1.0.0","plugins":[{"type":"flannel"},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	if err := os.WriteFile(filepath.Join(dir, "cni-conf.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDefaultImageHasWhatFlannelsHas(t *testing.T) {
	root, s := assembled(t, "default")
	if got := s.Entrypoint(); !slices.Equal(got, []string{"/opt/bin/weftd"}) {
		t.Errorf("entry point %q", got)
	}
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
		{[]string{"/opt/bin/install-conf", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-flannel.conflist"}, ""},
		{[]string{"cp", "-f", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-older.conflist"}, ""}, // manifests before install-conf
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
		out, err := output(t, Container{Root: root, ReadOnly: true, Mounts: mounts, Args: c.args, Env: environment(s)})
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v: %v\n%swant %q", c.args, err, out, c.want)
		}
	}
	// Rules are made with the capabilities that flannel's manifest has, and the extensions are there.
	rule := []string{"-t", "nat", "-A", "POSTROUTING", "-s", "10.244.0.0/16", "!", "-d", "224.0.0.0/4", "-m", "comment", "--comment", "x", "-j", "MASQUERADE", "--random-fully"}
	if out, err := output(t, Container{
		Root: root, Capabilities: []string{"NET_ADMIN", "NET_RAW"}, Net: namespace(t).FD(),
		Args: append([]string{"iptables-nft"}, rule...), Env: environment(s),
	}); err != nil {
		t.Errorf("iptables-nft: %v\n%s", err, out)
	}
	want, got := read(t, filepath.Join(conf, "cni-conf.json")), read(t, filepath.Join(net, "10-flannel.conflist"))
	if got != want {
		t.Errorf("installed %q, want %q", got, want)
	}
}

func environment(s Stage) []string { return append(s.Env(), "HOME=/") }

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func namespace(t *testing.T) *netns.Namespace {
	t.Helper()
	ns, err := netns.New("image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return ns
}

func TestMinimalImageHasNothingElse(t *testing.T) {
	root, s := assembled(t, "minimal")
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return err
	})
	want := []string{"/etc/ssl/certs/ca-certificates.crt", "/opt/bin/weft", "/opt/bin/weft-cni", "/opt/bin/weftd", "/usr/share/doc/weft/LICENSE"}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("%v\n got %q\nwant %q", err, files, want)
	}
	bin, net, conf := t.TempDir(), t.TempDir(), conflist(t)
	mounts := []Mount{
		{Source: bin, Target: "/host/opt/cni/bin"}, {Source: net, Target: "/host/etc/cni/net.d"},
		{Source: conf, Target: "/etc/kube-flannel", ReadOnly: true},
	}
	for _, args := range [][]string{
		{"weftd", "--version"},
		{"weft", "--version"},
		{"/opt/bin/weft-cni", "install", "--bin-dir=/host/opt/cni/bin", "--conf=/etc/kube-flannel/cni-conf.json", "--conf-file=/host/etc/cni/net.d/10-weft.conflist"},
		{"/host/opt/cni/bin/weft", "version"},
	} {
		if out, err := output(t, Container{Root: root, ReadOnly: true, Mounts: mounts, Args: args, Env: environment(s)}); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if got, want := read(t, filepath.Join(net, "10-weft.conflist")), read(t, filepath.Join(conf, "cni-conf.json")); got != want {
		t.Errorf("installed %q, want %q", got, want)
	}
}

// daemon runs weftd in an image with an embedded etcd, in a network of its own, and returns
// what /readyz says once ok likes it.
func daemon(t *testing.T, stage, config string, capabilities []string, mounts []Mount, ok func(status int, body string) bool) (log, answer string) {
	t.Helper()
	root, s := assembled(t, stage)
	ns, dir := namespace(t), t.TempDir()
	for _, line := range []string{"link add name eth0 type veth peer name far", "link set far up", "addr add 192.0.2.1/24 dev eth0", "link set eth0 up", "route add default via 192.0.2.2"} {
		if out, err := runIn(ns, exec.Command("ip", strings.Fields(line)...)); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	if !json.Valid([]byte(config)) {
		t.Fatalf("not JSON: %s", config)
	}
	if err := os.WriteFile(filepath.Join(dir, "net-conf.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run-flannel", "run-weft", "state"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c := Container{
		Root: root, ReadOnly: true, Capabilities: capabilities, Net: ns.FD(), Env: environment(s), Stdout: &out, Stderr: &out,
		Args: []string{"/opt/bin/weftd", "--embedded-etcd", "--net-config-path=/etc/kube-flannel/net-conf.json", "--ip-masq", "--healthz-ip=127.0.0.1", "--healthz-port=8081"},
		Mounts: append([]Mount{
			{Source: dir, Target: "/etc/kube-flannel", ReadOnly: true}, {Source: filepath.Join(dir, "run-flannel"), Target: "/run/flannel"},
			{Source: filepath.Join(dir, "run-weft"), Target: "/run/weft"}, {Source: filepath.Join(dir, "state"), Target: "/var/lib/weft"},
		}, mounts...),
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DialContext: ns.Dial, DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, body := get(client, "http://127.0.0.1:8081/readyz")
		if ok(status, body) {
			stop()
			if err := <-ended; err != nil {
				t.Errorf("weftd, told to stop: %v", err)
			}
			return out.String(), body
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return out.String(), "ended: " + errors.Join(err).Error()
		}
	}
}

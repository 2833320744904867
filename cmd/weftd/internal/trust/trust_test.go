package trust

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/options"
	"weft/lease/etcd/etcdtest"
)

// Commands are run only if their authors had to authenticate, or if the operator allows it.
func TestCommands(t *testing.T) {
	ca := etcdtest.NewCA(t)
	cert, key := ca.Leaf("node")
	tls := fmt.Sprintf(" --etcd-cafile %s --etcd-certfile %s --etcd-keyfile %s", ca.File, cert, key)
	open, closed := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "closed")
	for name, mode := range map[string]os.FileMode{open: 0o666, closed: 0o644} {
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	beneath := filepath.Join(t.TempDir(), "shared", "beneath") // a directory above it may be written by others
	if err := errors.Join(os.MkdirAll(beneath, 0o755),
		os.WriteFile(filepath.Join(beneath, "net.json"), nil, 0o644),
		os.Chmod(filepath.Dir(beneath), 0o777)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chmod(socket, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want string }{
		{"", "http://127.0.0.1:4001"},
		{"--allow-extension", ""},
		{"--etcd-endpoints http://192.0.2.1:2379 --etcd-username u --etcd-password p", "is not TLS"},
		{"--etcd-endpoints https://192.0.2.1:2379", "certificate"},
		{"--etcd-endpoints https://192.0.2.1:2379 --etcd-cafile " + ca.File, "certificate"},
		{"--etcd-endpoints https://192.0.2.1:2379" + tls, ""},
		{"--etcd-endpoints https://192.0.2.1:2379,http://192.0.2.2:2379" + tls, "https"},
		{"--etcd-endpoints 192.0.2.1:2379" + tls, ""},
		{"--etcd-endpoints https://192.0.2.1:2379 --etcd-username u --etcd-password p", ""},
		{"--etcd-endpoints https://192.0.2.1:2379 --etcd-username u", "neither"},
		{"--etcd-endpoints https://192.0.2.1:2379 --etcd-cafile /nonexistent", "/nonexistent"},
		{"--etcd-endpoints unix://" + socket, ""},
		{"--etcd-endpoints unix://" + open, "written"},
		{"--etcd-endpoints unix://" + beneath + "/net.json", "written"},
		{"--etcd-endpoints unix:///nonexistent", "/nonexistent"},
		{"--embedded-etcd", ""},
		{"--embedded-etcd --etcd-endpoints http://192.0.2.1:2379", "is not TLS"},
		{"--embedded-etcd --embedded-etcd-listen 127.0.0.1:2379", "certificate"},
		{"--embedded-etcd --embedded-etcd-listen 0.0.0.0:2379 --embedded-etcd-insecure", "certificate"},
		{fmt.Sprintf("--embedded-etcd --embedded-etcd-listen 192.0.2.1:2379 --etcd-certfile %s --etcd-keyfile %s",
			cert, key), "certificate"},
		{"--embedded-etcd --embedded-etcd-listen 192.0.2.1:2379" + tls, ""},
		{"--kube-subnet-mgr --net-config-path " + closed, ""},
		{"--kube-subnet-mgr --net-config-path " + open, "written"},
		{"--kube-subnet-mgr --net-config-path " + beneath + "/net.json", "written"},
		{"--kube-subnet-mgr --allow-extension --net-config-path " + open, ""},
		{"--kube-subnet-mgr --net-config-path /nonexistent", "/nonexistent"},
	} {
		cfg, err := options.Parse(strings.Fields(tt.args), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		switch err := Commands(cfg); {
		case (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		case err != nil && !cfg.Kube.On && !strings.Contains(err.Error(), "--allow-extension"):
			t.Errorf("%s: %v has no remedy", tt.args, err)
		}
	}
}

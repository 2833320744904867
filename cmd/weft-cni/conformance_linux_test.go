package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cnitool runs the specification's own runtime in the node, on net.d's network cbr0.
func (n *node) cnitool(command string, p pod) (string, error) {
	cmd := exec.Command(filepath.Join(binDir, "cnitool"), command, "cbr0", p.path())
	cmd.Env = []string{"CNI_PATH=" + n.path, "NETCONFPATH=" + n.dir + "/net.d", "PATH=" + os.Getenv("PATH") +
		":/usr/sbin:/sbin"}
	if command != "check" { // that of Debian's portmap looks for the ports of one family in the other's rules
		cmd.Env = append(cmd.Env,
			`CAP_ARGS={"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Run(cmd); err != nil {
		return "", fmt.Errorf("cnitool %s: %w: %s%s", command, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

// conflist writes net.d's only file.
func (n *node) conflist(cniVersion string, plugins ...string) {
	n.t.Helper()
	text := fmt.Sprintf(`{"name":"cbr0","cniVersion":%q,"plugins":[%s]}`, cniVersion, strings.Join(plugins, ","))
	dir := filepath.Join(n.dir, "net.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "10-flannel.conflist"), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// The list of kube-flannel.yml, in every version of the specification that Debian's
// plugins know: two pods, their addresses, a published port, and nothing left of them.
func TestPodsByCnitool(t *testing.T) {
	for _, c := range []struct {
		env, kind string
		versions  string
		mtu       int
		want      [2]string
		gateways  string
	}{
		{env4, "flannel", "0.3.1 0.4.0 1.0.0", 1450, [2]string{"[10.244.3.2/24]", "[10.244.3.3/24]"}, "10.244.3.1"},
		{env6, "weft", "1.0.0", 1430, [2]string{"[fd42:0:0:3::2/64]", "[fd42:0:0:3::3/64]"}, "fd42:0:0:3::1"},
		{envDual, "flannel", "0.3.1 1.0.0", 1400,
			[2]string{"[10.244.3.2/24 fd42:0:0:3::2/64]", "[10.244.3.3/24 fd42:0:0:3::3/64]"},
			"10.244.3.1 fd42:0:0:3::1"},
	} {
		for v := range strings.FieldsSeq(c.versions) {
			t.Run(c.gateways+"/"+v, func(t *testing.T) {
				n := newNode(t)
				n.subnet(c.env)
				n.conflist(v, n.conf(v, c.kind, `"delegate":{"hairpinMode":true,"isDefaultGateway":true}`),
					`{"type":"portmap","capabilities":{"portMappings":true}}`)
				pods := [2]pod{n.pod("a"), n.pod("b")}
				for i, p := range pods {
					if _, err := n.cnitool("add", p); err != nil {
						t.Fatal(err)
					}
					got := p.addresses(t, "eth0")
					if fmt.Sprint(got) != c.want[i] {
						t.Errorf("pod %d has %s, want %s", i, got, c.want[i])
					}
					if l, err := p.Netlink().LinkByName("eth0"); err != nil || l.Attrs().MTU != c.mtu {
						t.Errorf("pod %d: MTU %d, %v, want %d", i, l.Attrs().MTU, err, c.mtu)
					}
					if v != "0.3.1" { // which has no CHECK
						if _, err := n.cnitool("check", p); err != nil {
							t.Error(err)
						}
					}
					if i == 0 { // one host port, one pod
						for gw := range strings.FieldsSeq(c.gateways) {
							reach(t, n.Namespace, p, netip.MustParseAddr(gw), 80, 8080)
						}
					}
				}
				for _, a := range pods[1].addresses(t, "eth0") {
					reach(t, pods[0].Namespace, pods[1], a.Addr(), 80, 80)
				}
				for _, p := range slices.Concat(pods[:], pods[:]) { // and once more
					if _, err := n.cnitool("del", p); err != nil {
						t.Error(err)
					}
					if got := p.addresses(t, "eth0"); got != nil {
						t.Errorf("detached, and still with %s", got)
					}
				}
				n.wantClean()
			})
		}
	}
}

// shippedConf is the list that the manifests install.
const shippedConf = "../weftd/deploy/kubernetes/base/cni-conf.json"

// shipped installs the manifests' list, with this node's paths, beside plugins of one folder.
func (n *node) shipped(bin string) {
	n.t.Helper()
	text, err := os.ReadFile(shippedConf)
	if err != nil {
		n.t.Fatal(err)
	}
	paths := fmt.Sprintf(
		`{"type": "weft", "subnetFile":"%s/subnet.env","dataDir":"%s/state","controlSocket":"%s/weftd.sock","ipam":{"dataDir":"%s/ipam"},`, n.dir, n.dir, n.dir, n.dir)
	conf := strings.Replace(string(text), `{"type": "weft",`, paths, 1)
	from := filepath.Join(n.dir, "cni-conf.json")
	if err := os.WriteFile(from, []byte(conf), 0o644); err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binDir, "weft"), "install", "--bin-dir", bin, "--conf", from,
		"--conf-file", filepath.Join(n.dir, "net.d/10-weft.conflist"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	n.t.Logf("%s", out)
}

// The list that the manifests install works with plugins of either age. Debian's are not called with version
// 1.1.0, which they refuse; with newer ones the runtime's GC and STATUS reach the plugin.
func TestShippedList(t *testing.T) {
	for _, newest := range []string{"1.0.0", "1.1.0"} {
		t.Run(newest, func(t *testing.T) {
			n := newNode(t)
			n.path = map[string]string{"1.0.0": debianPlugins, "1.1.0": binDir}[newest]
			bin := t.TempDir()
			for _, name := range []string{"bridge", "host-local", "portmap"} {
				if err := os.Symlink(filepath.Join(n.path, name), filepath.Join(bin, name)); err != nil {
					t.Fatal(err)
				}
			}
			n.shipped(bin)
			n.path = bin
			p := n.pod("a")
			// Without a subnet STATUS fails, if the runtime asks for it at all.
			if _, err := n.cnitool("status", p); (err != nil) != (newest == "1.1.0") {
				t.Errorf("status without a subnet: %v", err)
			}
			n.subnet(env4)
			for _, command := range []string{"status", "add", "check", "status"} {
				if out, err := n.cnitool(command, p); err != nil {
					t.Fatalf("%s: %v", command, err)
				} else if command == "add" && !strings.Contains(out, `"cniVersion": "`+newest+`"`) {
					t.Errorf("want a result of version %s: %s", newest, out)
				}
			}
			reach(t, n.Namespace, p, netip.MustParseAddr("10.244.3.1"), 80, 8080)
			for range 2 {
				if _, err := n.cnitool("del", p); err != nil {
					t.Error(err)
				}
			}
			// cnitool's gc names no valid attachment. What the library keeps is detached by DEL, and GC is refused.
			if _, err := n.cnitool("gc", p); newest == "1.1.0" &&
				(err == nil || !strings.Contains(err.Error(), "valid-attachments")) {
				t.Errorf("gc: %v", err)
			}
			n.wantClean()
		})
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/netns"
)

// debianPlugins is where Debian's containernetworking-plugins are.
const debianPlugins = "/usr/lib/cni"

// binDir is the directory in which the plugin and cnitool are built, once for a run of the tests.
var binDir string

func TestMain(m *testing.M) {
	netns.Isolate()
	dir, err := os.MkdirTemp("", "weft-cni-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// newer is a program for a plugin of Debian, which knows version 1.0.0 at most: with it the plugin knows
// 1.1.0.
const newer = `#!/bin/sh
in=$(cat)
from() { sed 's/"cniVersion": *"'$1'"/"cniVersion":"'$2'"/g'; }
old() { printf %s "$in" | from 1.1.0 1.0.0 | ` + debianPlugins + `/$(basename $0); }
case $CNI_COMMAND:$in in
VERSION:*) echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}' ;;
GC:* | STATUS:*) ;;
*'"cniVersion":"1.1.0"'*) out=$(old); code=$?; printf %s "$out" | from 1.0.0 1.1.0; exit $code ;;
*) old ;;
esac
`

// build makes the plugin, under both its names, cnitool, and plugins that know version 1.1.0.
var build = sync.OnceValue(func() error {
	for _, args := range [][]string{{"weft", "."}, {"cnitool", "github.com/containernetworking/cni/cnitool"}} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(binDir, args[0]), args[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		if err := os.WriteFile(filepath.Join(binDir, name), []byte(newer), 0o755); err != nil {
			return err
		}
	}
	return os.Symlink("weft", filepath.Join(binDir, "flannel"))
})

// node is a host with a runtime's directories.
type node struct {
	*netns.Namespace
	t *testing.T
	// dir has subnet.env, the state of the plugin and of host-local, and net.d.
	dir string
	// path is CNI_PATH.
	path string
}

// newNode makes a node for a test, which runs beside others from here on.
func newNode(t *testing.T) *node {
	t.Helper()
	netns.TUN(t)
	t.Parallel()
	for _, p := range []string{"bridge", "host-local", "portmap"} {
		if _, err := os.Stat(filepath.Join(debianPlugins, p)); err != nil {
			t.Fatalf("%v: apt-get install containernetworking-plugins", err)
		}
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	n := &node{Namespace: netns.New(t, "node"), t: t, dir: t.TempDir(), path: binDir}
	for key, value := range map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"} {
		if err := n.Sysctl(key, value); err != nil {
			t.Fatal(err)
		}
	}
	// The library's cache and the firewall's lock are at fixed paths; the node has them to itself.
	err := n.Do(func() error {
		return errors.Join(unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""),
			unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// These are contents of a node's subnet.env.
const (
	env4    = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	env6    = "FLANNEL_IPV6_NETWORK=fd42::/48\nFLANNEL_IPV6_SUBNET=fd42:0:0:3::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\n"
	envDual = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_NETWORK=fd42::/48\nFLANNEL_IPV6_SUBNET=fd42:0:0:3::1/64\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=false\n"
)

func (n *node) subnet(env string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, "subnet.env"), []byte(env), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// conf returns a configuration of the plugin on this node, of the network cbr0 unless keys
// say otherwise. keys are further members of the object, as JSON without braces.
func (n *node) conf(cniVersion, kind, keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	if !strings.Contains(keys, `"ipam":`) {
		keys += `,"ipam":{"dataDir":"` + n.dir + `/ipam"}`
	}
	if !strings.Contains(keys, `"name":`) {
		keys += `,"name":"cbr0"`
	}
	return fmt.Sprintf(
		`{"cniVersion":%q,"type":%q,"subnetFile":"%s/subnet.env","dataDir":"%s/state","controlSocket":"%s/weftd.sock"%s}`,
		cniVersion, kind, n.dir, n.dir, n.dir, keys)
}

// pod is a container as far as a runtime's plugins see it.
type pod struct {
	*netns.Namespace
	id string
}

func (n *node) pod(id string) pod { n.t.Helper(); return pod{netns.New(n.t, id), id} }

// path names the pod's namespace to other processes.
func (p pod) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.FD()) }

// run calls the plugin in the node and returns what it printed, or the error it printed.
func (n *node) run(command, id, ns, ifname, conf string) (string, error) {
	cmd := exec.Command(filepath.Join(binDir, "flannel"))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=" + n.path, "PATH=" + os.Getenv("PATH") +
		":/usr/sbin:/sbin"}
	for key, value := range map[string]string{"CNI_CONTAINERID": id, "CNI_NETNS": ns, "CNI_IFNAME": ifname} {
		if value != "" {
			cmd.Env = append(cmd.Env, key+"="+value)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
	err := n.Run(cmd)
	if stderr.Len() > 0 {
		n.t.Logf("%s %s %s, on standard error: %s", command, id, ifname, stderr.Bytes())
	}
	if err == nil {
		return stdout.String(), nil
	}
	var e types.Error
	if json.Unmarshal(stdout.Bytes(), &e) != nil || e.Msg == "" {
		return "", fmt.Errorf("%s: %w: no error as the specification has it, but %q and %q", command, err,
			stdout.Bytes(), stderr.Bytes())
	}
	return "", &e
}

// must calls run, which has to succeed.
func (n *node) must(command string, p pod, ifname, conf string) string {
	n.t.Helper()
	out, err := n.run(command, p.id, p.path(), ifname, conf)
	if err != nil {
		n.t.Fatalf("%s of %s of %s: %v", command, ifname, p.id, err)
	}
	return out
}

// withPrev returns conf with the result of ADD.
func withPrev(conf, result string) string {
	return strings.TrimSuffix(conf, "}") + `,"prevResult":` + result + "}"
}

// code is the code of an error that the plugin printed, 0 if it is none.
func code(err error) uint {
	var e *types.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// addresses returns those of ifname in the pod, without link-local ones; nil if it has no such interface.
func (p pod) addresses(t *testing.T, ifname string) (out []netip.Prefix) {
	t.Helper()
	l, err := p.Netlink().LinkByName(ifname)
	if err != nil {
		return nil
	}
	addrs, err := p.Netlink().AddrList(l, unix.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if ones, _ := a.Mask.Size(); ok && !ip.Unmap().IsLinkLocalUnicast() {
			out = append(out, netip.PrefixFrom(ip.Unmap(), ones))
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return out
}

// reserved lists the addresses that host-local holds for network, as "address container".
func (n *node) reserved(network string) (out []string) {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "ipam", network, "*[.:]*"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); !strings.HasPrefix(name, "last_reserved_ip") {
			b, err := os.ReadFile(f)
			if err != nil {
				n.t.Fatal(err)
			}
			id, _, _ := strings.Cut(string(b), "\r\n")
			out = append(out, name+" "+id)
		}
	}
	return out
}

// state lists the names of the plugin's files.
func (n *node) state() (out []string) {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.dir, "state"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != noted {
			out = append(out, e.Name())
		}
	}
	return out
}

// wantClean fails if anything is left of any attachment to cbr0.
func (n *node) wantClean() {
	n.t.Helper()
	if r, s := n.reserved("cbr0"), n.state(); len(r) > 0 || len(s) > 0 {
		n.t.Errorf("left behind: addresses %q, state %q", r, s)
	}
}

// reach connects from one namespace to a listener on port in another, until that works: an IPv6
// address is not usable at once.
func reach(t *testing.T, from *netns.Namespace, to pod, addr netip.Addr, listen, dial uint16) {
	t.Helper()
	var l net.Listener
	await.OK(t, fmt.Sprintf("listen in %s", to.id), func() error {
		return to.Do(func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), listen).String())
			return err
		})
	})
	defer l.Close()
	await.OK(t, fmt.Sprintf("connect to %s of %s", addr, to.id), func() error {
		c, err := from.Dial(t.Context(), "tcp", netip.AddrPortFrom(addr, dial).String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

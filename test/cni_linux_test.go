package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/netns"
)

// cniPod is a container whose interface weft-cni makes.
type cniPod struct {
	*netns.Namespace
	id    string
	node  *lab.Node
	addrs []netip.Addr
}

func (p *cniPod) endpoint(family int) probe.Endpoint {
	return probe.Endpoint{Name: p.id, NS: p.Namespace, Addr: p.addrs[map[int]int{4: 0, 6: 1}[family]]}
}

// cni calls a plugin in the pod's node as a runtime does, and returns what it prints.
func (p *cniPod) cni(t *testing.T, command, program, conf string) (string, error) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.id, "CNI_IFNAME=eth0",
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), p.FD()),
		"CNI_PATH=" + cniPlugins, "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &stdout, &stderr
	if err := p.node.NS.Run(cmd); err != nil {
		return "", fmt.Errorf("%s of %s: %w: %s%s", command, p.id, err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

func (p *cniPod) must(t *testing.T, command, program, conf string) string {
	t.Helper()
	out, err := p.cni(t, command, program, conf)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cniPlugins is where Debian's containernetworking-plugins are.
const cniPlugins = "/usr/lib/cni"

// TestDirectByCNI has weft-cni attach pods directly on a node that has a bridge's pod too: all of them, the
// host and another node's pod talk in both families, and a restart of weftd between ADD and DEL is no matter.
func TestDirectByCNI(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Name: "cni", NetworkConfig: json.RawMessage(dualStack)})
	n, bridge, far := l.Node(1), l.Node(1).Pods[0], l.Node(2).Pods[0]
	plugin := command(t, "weft-cni")
	dir := filepath.Join(n.Dir, "ipam", "cbr0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{bridge.V4, bridge.V6} { // the lab gave it its address by itself
		if err := os.WriteFile(filepath.Join(dir, a.String()), []byte("bridge\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf := func(more string) string {
		return fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":"cbr0","type":"weft","attach":"direct","subnetFile":%q,"dataDir":%q,"controlSocket":%q,"ipam":{"dataDir":%q},"delegate":{"isDefaultGateway":true}%s}`,
			n.SubnetFile, n.Dir+"/cni", n.ControlSocket, filepath.Dir(dir), more)
	}
	pods := make([]*cniPod, 2)
	var results []string
	for i := range pods {
		ns := netns.New(t, fmt.Sprint("cni-pod", i))
		p := &cniPod{Namespace: ns, id: fmt.Sprint("cni-pod", i), node: n}
		result := p.must(t, "ADD", plugin, conf(""))
		var r struct {
			IPs []struct{ Address netip.Prefix }
		}
		if err := json.Unmarshal([]byte(result), &r); err != nil {
			t.Fatal(err)
		}
		for _, ip := range r.IPs {
			p.addrs = append(p.addrs, ip.Address.Addr())
		}
		if len(p.addrs) != 2 || p.addrs[0] == bridge.V4 {
			t.Fatalf("%s has %v beside %v", p.id, p.addrs, bridge.V4)
		}
		pods[i], results = p, append(results, result)
	}
	a, b := pods[0], pods[1]
	reach := func(what string) {
		t.Helper()
		for i, family := range []int{4, 6} {
			for _, way := range []struct {
				from probe.Endpoint
				to   netip.Addr
			}{
				{n.Endpoint(family), a.addrs[i]},
				{a.endpoint(family), map[int]netip.Addr{4: n.Underlay4, 6: n.Underlay6}[family]},
				{a.endpoint(family), b.addrs[i]}, {a.endpoint(family), bridge.Addr(family)},
				{bridge.Endpoint(family), b.addrs[i]},
				{a.endpoint(family), far.Addr(family)}, {far.Endpoint(family), b.addrs[i]},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
				err := lab.Reach(ctx, way.from, way.to)
				if cancel(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
	}
	reach("attached")

	check := conf(`,"prevResult":` + results[0])
	a.must(t, "CHECK", plugin, check)
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cni(t, "CHECK", plugin, conf(`,"prevResult":`+results[1])); err == nil ||
		!strings.Contains(err.Error(), `"code": 11`) {
		t.Errorf("CHECK without a weftd: %v", err)
	}
	a.must(t, "DEL", plugin, conf("")) // while weftd is away
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.must(t, "DEL", plugin, conf(""))
	await.OK(t, "nothing is left", func() error {
		for _, path := range []string{filepath.Join(dir, a.addrs[0].String()),
			filepath.Join(dir, b.addrs[1].String())} {
			if _, err := os.Stat(path); err == nil {
				return errors.New(path)
			}
		}
		left, err := n.Command(t.Context(), "sh", "-c",
			"ip neigh show proxy; ip -6 neigh show proxy; ip route show proto 119; ip -6 route show proto 119")
		if err == nil && (strings.Contains(string(left), "proxy") ||
			strings.Contains(string(left), a.addrs[0].String()) ||
			strings.Contains(string(left), b.addrs[1].String())) {
			err = fmt.Errorf("the host has\n%s", left)
		}
		return err
	})
}

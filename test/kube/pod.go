package kube

import (
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
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	cni "github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"weft/test/lab"
	"weft/test/lab/netns"
	"weft/test/lab/probe"
)

// pluginDir is where Debian's containernetworking-plugins are.
const pluginDir = "/usr/lib/cni"

// Pod is a container's network, attached by weft-cni.
type Pod struct {
	Node *Node
	// Name is also the container's ID.
	Name string
	NS   *netns.Namespace
	// V4 and V6 are its addresses; the zero Addr in a family that it does not have.
	V4, V6 netip.Addr
}

// Endpoint is the pod's address of family 4 or 6 for package probe.
func (p *Pod) Endpoint(family int) probe.Endpoint {
	addr := p.V4
	if family == 6 {
		addr = p.V6
	}
	return probe.Endpoint{Name: p.Name, NS: p.NS, Addr: addr}
}

// AddPod makes a network namespace and attaches it as a container runtime does: it calls the node's list of
// plugins with ADD.
func (n *Node) AddPod(t *testing.T) *Pod {
	t.Helper()
	name := fmt.Sprintf("%s-pod%d", n.Object, len(n.pods)+1)
	ns, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pod{Node: n, Name: name, NS: ns}
	n.pods = append(n.pods, p)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := n.cni(func(c *libcni.CNIConfig, list *libcni.NetworkConfigList) (cni.Result, error) {
		return c.AddNetworkList(ctx, list, p.runtime())
	})
	if err != nil {
		t.Fatalf("%s: CNI ADD: %v", name, err)
	}
	result, err := types100.NewResultFromResult(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if addr = addr.Unmap(); addr.Is4() {
			p.V4 = addr
		} else {
			p.V6 = addr
		}
	}
	return p
}

// Remove detaches the pod: it calls the plugins with DEL.
func (p *Pod) Remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := p.Node.cni(func(c *libcni.CNIConfig, list *libcni.NetworkConfigList) (cni.Result, error) {
		return nil, c.DelNetworkList(ctx, list, p.runtime())
	})
	if err != nil {
		t.Fatalf("%s: CNI DEL: %v", p.Name, err)
	}
	p.NS.Close()
}

// removePods closes the pods' namespaces.
func (n *Node) removePods() {
	for _, p := range n.pods {
		p.NS.Close()
	}
}

func (p *Pod) runtime() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.Name, IfName: "eth0",
		// the plugins are other processes, so not /proc/self
		NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.NS.FD()),
	}
}

// cni calls the node's list of plugins on the node.
func (n *Node) cni(call func(*libcni.CNIConfig, *libcni.NetworkConfigList) (cni.Result, error)) (cni.Result,
	error) {
	if _, err := os.Stat(filepath.Join(pluginDir, "bridge")); err != nil {
		return nil, fmt.Errorf("%w: make deps installs containernetworking-plugins", err)
	}
	first := map[string]any{"type": "flannel", "subnetFile": n.SubnetFile,
		"delegate": map[string]any{"hairpinMode": true, "isDefaultGateway": true}}
	if n.Direct {
		first["type"], first["attach"], first["controlSocket"] = "weft", "direct", n.ControlSocket
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "cbr0",
		"plugins": []map[string]any{
			first,
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	})
	if err != nil {
		return nil, err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return nil, err
	}
	path := []string{n.cluster.programs.cni, pluginDir}
	return call(libcni.NewCNIConfigWithCacheDir(path, filepath.Join(n.Dir, "cni-cache"), &onHost{host: n.Host}),
		list)
}

// onHost runs plugins in a host's namespaces.
type onHost struct {
	version.PluginDecoder
	host *lab.Host
}

// ExecPlugin implements invoke.Exec.
func (e *onHost) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte,
	error) {
	cmd := exec.CommandContext(ctx, path)
	var out, fault strings.Builder
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, strings.NewReader(string(stdin)), &out, &fault
	if err := e.host.NS.Run(cmd); err != nil {
		said := &cni.Error{}
		if json.Unmarshal([]byte(out.String()), said) == nil && said.Msg != "" {
			err = said
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", filepath.Base(path), err), stderrOf(fault.String()))
	}
	return []byte(out.String()), nil
}

func stderrOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(strings.TrimSpace(text))
}

// FindInPath implements invoke.Exec.
func (e *onHost) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

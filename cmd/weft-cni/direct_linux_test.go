package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
)

// attacher is a weftd that keeps pods' descriptors and carries nothing.
type attacher struct {
	daemon
	mu     sync.Mutex
	pods   map[podport.Key]podport.Pod
	tuns   map[podport.Key]int
	refuse string
}

func (a *attacher) MayAttach(podport.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != "" {
		return fmt.Errorf("%w: %s", control.ErrRefused, a.refuse)
	}
	return nil
}

func (a *attacher) Attach(r podport.Request, fds []int) (podport.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods == nil {
		a.pods, a.tuns = map[podport.Key]podport.Pod{}, map[podport.Key]int{}
	}
	rights.Close(fds[1:]) // nothing is done with them here
	p := podport.Pod{Request: r, State: podport.Attached}
	a.pods[r.Key], a.tuns[r.Key] = p, fds[0]
	return p, nil
}

func (a *attacher) Detach(k podport.Key) (podport.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pods[k]
	if !ok {
		return p, fmt.Errorf("%s: %w", k, control.ErrNotFound)
	}
	delete(a.pods, k)
	return p, unix.Close(a.tuns[k])
}

func (a *attacher) Pods() podport.Pods {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := podport.Pods{Node: podport.Node{Attaches: a.refuse == "", Why: a.refuse}}
	for _, p := range a.pods {
		out.Pods = append(out.Pods, p)
	}
	return out
}

// direct is a configuration of directly attached pods.
func (n *node) direct(keys string) string {
	if keys != "" {
		keys = "," + keys
	}
	return n.conf("1.0.0", "weft", `"attach":"direct","delegate":{"isDefaultGateway":true,"hairpinMode":true}`+
		keys)
}

func TestDirect(t *testing.T) {
	n := newNode(t)
	n.subnet(envDual)
	d := &attacher{}
	stop := n.serveNode(control.Server{Pages: d, Pods: d})
	p := n.pod("a")
	conf := n.direct(`"gsoMaxSize":61564`)
	result := n.must("ADD", p, "eth0", conf)
	var got types100.Result
	if err := json.Unmarshal([]byte(result), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.IPs) != 2 || got.IPs[0].Address.String() != "10.244.3.2/32" ||
		got.IPs[1].Address.String() != "fd42:0:0:3::2/128" || *got.IPs[0].Interface != 0 ||
		len(got.Interfaces) != 1 || got.Interfaces[0].Name != "eth0" || got.Interfaces[0].Sandbox != p.path() ||
		len(got.Routes) != 4 {
		t.Errorf("result %s", result)
	}
	if addrs := p.addresses(t, "eth0"); fmt.Sprint(addrs) != "[10.244.3.2/32 fd42:0:0:3::2/128]" {
		t.Errorf("the pod has %s", addrs)
	}
	l, err := p.Netlink().LinkByName("eth0")
	if err != nil || l.Attrs().MTU != 1400 || l.Attrs().GSOMaxSize != 61564 || l.Type() != "tuntap" {
		t.Errorf("link %+v, %v", l, err)
	}
	if _, err := n.Netlink().LinkByName("cni0"); err == nil {
		t.Error("there is a bridge")
	}
	k := podport.Key{ID: "a", Interface: "eth0"}
	if r := d.pods[k]; !slices.Equal(r.Addresses,
		[]netip.Addr{netip.MustParseAddr("10.244.3.2"), netip.MustParseAddr("fd42:0:0:3::2")}) || r.MTU != 1400 ||
		r.By != "weft-cni" || r.Reservation != nil {
		t.Errorf("weftd was told %+v", r)
	}
	n.must("CHECK", p, "eth0", withPrev(conf, result))
	if _, err := n.run("ADD", p.id, p.path(), "eth0", conf); code(err) != 7 {
		t.Errorf("a second ADD: %v", err)
	}
	n.must("CHECK", p, "eth0", withPrev(conf, result))

	refused := func(what, want string) {
		t.Helper()
		if _, err := n.run("CHECK", p.id, p.path(), "eth0", withPrev(conf, result)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("CHECK, %s: got %v, want %q", what, err, want)
		}
	}
	if err := p.Netlink().LinkSetMTU(l, 1300); err != nil {
		t.Fatal(err)
	}
	refused("another MTU", "1400")
	if err := p.Netlink().LinkSetMTU(l, 1400); err != nil {
		t.Fatal(err)
	}
	known := d.pods[k]
	d.pods[k] = podport.Pod{Request: known.Request, State: podport.Missing, Problem: "attach it again"}
	refused("missing at weftd", "missing")
	delete(d.pods, k)
	refused("unknown to weftd", "weftd")
	d.pods[k] = known
	stop()
	refused("no weftd", "running")

	// A DEL needs no weftd, and neither the namespace nor a second one are a fault.
	n.must("DEL", p, "eth0", conf)
	n.wantClean()
	if p.addresses(t, "eth0") != nil {
		t.Error("the interface is there")
	}
	n.must("DEL", p, "eth0", conf)
	if _, err := n.run("ADD", p.id, p.path(), "eth0", conf); code(err) != 11 ||
		!strings.Contains(err.Error(), "running") {
		t.Errorf("ADD without a weftd: %v", err)
	}
	n.wantClean()
	d = &attacher{}
	n.serveNode(control.Server{Pages: d, Pods: d})
	n.must("ADD", p, "eth0", conf)
	if _, err := n.run("DEL", p.id, "/nowhere/ns", "eth0", conf); err != nil || len(d.pods) > 0 {
		t.Errorf("DEL of a namespace that is gone: %v, weftd has %v", err, d.pods)
	}
	n.wantClean()
}

// A weftd that refuses leaves nothing behind, and says why.
func TestDirectRefused(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	d := &attacher{refuse: "10.244.3.2"}
	p, conf := n.pod("a"), n.direct("")
	status := strings.Replace(conf, "1.0.0", "1.1.0", 1)
	if _, err := n.run("STATUS", "", "", "", status); code(err) != 51 ||
		!strings.Contains(err.Error(), "running") {
		t.Errorf("STATUS without a weftd: %v", err)
	}
	n.serveNode(control.Server{Pages: d, Pods: d})
	if _, err := n.run("ADD", p.id, p.path(), "eth0", conf); code(err) != 999 ||
		!strings.Contains(err.Error(), d.refuse) {
		t.Errorf("ADD: %v", err)
	}
	n.wantClean()
	if p.addresses(t, "eth0") != nil {
		t.Error("the interface is there")
	}
	if _, err := n.run("STATUS", "", "", "", status); code(err) != 50 ||
		!strings.Contains(err.Error(), d.refuse) {
		t.Errorf("STATUS: %v", err)
	}
	d.refuse = ""
	if _, err := n.run("STATUS", "", "", "", status); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	for keys, want := range map[string]string{
		`"attach":"indirect"`: "direct",
		`"attach":"direct","delegate":{"type":"macvlan","ipMasq":true,"vlan":7,"mtu":"x"}`: `delegate.type is "macvlan"`,
	} {
		_, err := n.run("ADD", p.id, p.path(), "eth0", n.conf("1.0.0", "weft", keys))
		if code(err) != 7 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

// A node goes over to direct pods and back while pods of both kinds live: each is detached as it was
// attached, and all have addresses of one allocation. GC tells them apart too.
func TestDirectBesideBridge(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	d := &attacher{}
	n.serveNode(control.Server{Pages: d, Pods: d})
	bridge, direct := n.conf("1.1.0", "weft", ""), strings.Replace(n.direct(""), "1.0.0", "1.1.0", 1)
	a, b, c := n.pod("a"), n.pod("b"), n.pod("c")
	n.must("ADD", a, "eth0", bridge)
	n.must("ADD", b, "eth0", direct)
	result := n.must("ADD", c, "eth0", bridge)
	for i, p := range []pod{a, b, c} {
		if got := p.addresses(t, "eth0"); len(got) != 1 ||
			got[0].Addr() != netip.AddrFrom4([4]byte{10, 244, 3, byte(i + 2)}) {
			t.Errorf("%s has %s", p.id, got)
		}
	}
	n.must("DEL", a, "eth0", direct)
	n.must("CHECK", c, "eth0", withPrev(direct, result))
	n.must("DEL", b, "eth0", bridge)
	if len(d.pods) > 0 || b.addresses(t, "eth0") != nil {
		t.Errorf("weftd has %v, the pod %s", d.pods, b.addresses(t, "eth0"))
	}
	n.must("ADD", a, "eth0", direct)
	n.must("ADD", b, "eth0", direct)
	gc := strings.TrimSuffix(bridge, "}") + `,"cni.dev/valid-attachments":[{"containerID":"b","ifname":"eth0"}]}`
	if _, err := n.run("GC", "", "", "", gc); err != nil {
		t.Error(err)
	}
	if _, there := d.pods[podport.Key{ID: "b", Interface: "eth0"}]; len(d.pods) != 1 || !there ||
		len(n.reserved("cbr0")) != 1 {
		t.Errorf("after GC weftd has %v, and host-local %q", d.pods, n.reserved("cbr0"))
	}

	// flannel's plugin, in our place again, would hand the state to the plugin that it names.
	text, err := os.ReadFile(filepath.Join(n.dir, "state", "b"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(debianPlugins, "host-local"))
	cmd.Env, cmd.Stdin = []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=b", "CNI_IFNAME=eth0", "CNI_PATH=" +
		n.path, "CNI_NETNS="}, bytes.NewReader(bytes.Replace(text, []byte(`"1.1.0"`), []byte(`"1.0.0"`), 1))
	if out, err := n.output(cmd); err != nil || len(n.reserved("cbr0")) != 0 {
		t.Errorf("%v: %s; reserved %q", err, out, n.reserved("cbr0"))
	}
	n.must("DEL", b, "eth0", bridge)
	n.wantClean()
}

// output runs a program in the node.
func (n *node) output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := n.Run(cmd)
	return out.String(), err
}

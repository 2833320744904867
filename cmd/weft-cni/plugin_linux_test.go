package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	"weft/cmd/internal/control"
	"weft/encap"
	"weft/test/netns"
)

func TestAddTwice(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
	n.must("ADD", p, "eth0", conf)
	if _, err := n.run("ADD", p.id, p.path(), "eth0", conf); err == nil {
		t.Error("a second ADD of the same interface succeeded")
	}
	// The first is as it was: with its interface, its address, and what DEL needs.
	if got := fmt.Sprint(p.addresses(t, "eth0")); got != "[10.244.3.2/24]" {
		t.Errorf("the pod has %s", got)
	}
	if got := n.reserved("cbr0"); !slices.Equal(got, []string{"10.244.3.2 a"}) {
		t.Errorf("reserved: %q", got)
	}
	other := n.conf("1.0.0", "flannel", `"name":"other"`)
	if _, err := n.run("ADD", p.id, p.path(), "eth0", other); code(err) != types.ErrInvalidNetworkConfig ||
		!strings.Contains(err.Error(), "cbr0") {
		t.Errorf("another network's ADD: %v", err)
	}
	n.must("DEL", p, "eth0", other) // as a runtime does after an ADD that failed
	if got := fmt.Sprint(p.addresses(t, "eth0")); got != "[10.244.3.2/24]" {
		t.Errorf("after another network's DEL the pod has %s", got)
	}
	for range 2 {
		n.must("DEL", p, "eth0", conf)
	}
	n.wantClean()
}

// A running pod gets a second ADD, while there is no record of the first, or only the one that flannel's
// plugin wrote. The pod keeps its interface, and its address is given to nobody else.
func TestAddTwiceAfterLostState(t *testing.T) {
	for _, lost := range [][]string{{"a", "a:eth0"}, {"a:eth0"}} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			n := newNode(t)
			n.subnet(env4)
			p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
			n.must("ADD", p, "eth0", conf)
			for _, f := range lost {
				if err := os.Remove(filepath.Join(n.dir, "state", f)); err != nil {
					t.Fatal(err)
				}
			}
			left := fmt.Sprint(n.state())
			elsewhere := n.pod("a") // the container's id with another namespace
			for _, ns := range []string{p.path(), elsewhere.path()} {
				if _, err := n.run("ADD", "a", ns, "eth0", conf); err == nil ||
					!strings.Contains(err.Error(), "already") {
					t.Errorf("a second ADD: %v", err)
				}
				if got := fmt.Sprint(p.addresses(t, "eth0"), n.reserved("cbr0"), n.state()); got !=
					"[10.244.3.2/24] [10.244.3.2 a] "+left {
					t.Errorf("after the second ADD: %s", got)
				}
				if got := elsewhere.addresses(t, "eth0"); got != nil {
					t.Errorf("the other namespace has %s", got)
				}
			}
			foreign := n.conf("1.0.0", "flannel", `"name":"other"`)
			if _, err := n.run("ADD", "a", p.path(), "eth0", foreign); err == nil {
				t.Error("another network's ADD succeeded")
			}
			n.must("DEL", p, "eth0", foreign) // as a runtime does after an ADD that failed
			if got := fmt.Sprint(p.addresses(t, "eth0"), n.reserved("cbr0")); got != "[10.244.3.2/24] [10.244.3.2 a]" {
				t.Errorf("after another network's DEL: %s", got)
			}
			other := n.pod("b")
			n.must("ADD", other, "eth0", conf)
			if got := fmt.Sprint(other.addresses(t, "eth0")); got != "[10.244.3.3/24]" {
				t.Errorf("the next pod has %s", got)
			}
			n.must("DEL", p, "eth0", conf)
			n.must("DEL", other, "eth0", conf)
			n.wantClean()
		})
	}
}

func TestTwoInterfacesOfOneContainer(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
	second := n.conf("1.0.0", "flannel", `"name":"second","delegate":{"bridge":"cni1"}`)
	n.must("ADD", p, "eth0", conf)
	n.must("ADD", p, "net1", second)
	n.must("DEL", p, "eth0", conf)
	if got := fmt.Sprint(n.reserved("cbr0"), n.reserved("second"), p.addresses(t, "eth0"),
		p.addresses(t, "net1")); got != "[] [10.244.3.2 a] [] [10.244.3.2/24]" {
		t.Errorf("after one was detached: %s", got)
	}
	n.must("DEL", p, "net1", second)
	if r := n.reserved("second"); len(r) > 0 {
		t.Errorf("left behind: %q", r)
	}
	n.wantClean()
}

func TestDelWithoutSubnetOrNamespace(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
	n.must("ADD", p, "eth0", conf)
	if err := os.Remove(filepath.Join(n.dir, "subnet.env")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := n.run("DEL", "a", "", "eth0", conf); err != nil {
			t.Error(err)
		}
	}
	n.wantClean()
}

// A delegate fails, or dies together with the plugin, before or after its work.
func TestAddThatFails(t *testing.T) {
	for _, c := range []struct {
		name, script string
		crash        bool
	}{
		{"before its work", `[ $CNI_COMMAND = ADD ] || exec ` + debianPlugins +
			`/bridge; echo '{"code":123,"msg":"as told"}'; exit 1`, false},
		{"after its work", debianPlugins +
			`/bridge >/dev/null; [ $CNI_COMMAND = ADD ] || exit 0; echo '{"code":123,"msg":"as told"}'; exit 1`,
			false},
		{"crash before its work", `[ $CNI_COMMAND = ADD ] || exec ` + debianPlugins + `/bridge; kill -9 $PPID`,
			true},
		{"crash after its work", debianPlugins +
			`/bridge >/dev/null; [ $CNI_COMMAND = ADD ] || exit 0; kill -9 $PPID`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.subnet(env4)
			broken := t.TempDir()
			netns.Script(t, filepath.Join(broken, "bridge"), "#!/bin/sh\n"+c.script+"\n")
			whole := n.path
			n.path = broken + ":" + whole
			p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
			_, err := n.run("ADD", p.id, p.path(), "eth0", conf)
			if c.crash {
				if code(err) != 0 || !slices.Contains(n.state(), "a:eth0") {
					t.Fatalf("got %v, and state %q", err, n.state())
				}
				n.path = whole
				n.must("DEL", p, "eth0", conf)
			} else if code(err) != 123 || !strings.Contains(err.Error(), "bridge: as told") {
				t.Errorf("got %v", err)
			}
			n.wantClean()
			if got := p.addresses(t, "eth0"); got != nil {
				t.Errorf("the pod has %s", got)
			}
			n.path = whole // and the container can be attached after all
			n.must("ADD", p, "eth0", conf)
			n.must("DEL", p, "eth0", conf)
			n.wantClean()
		})
	}
}

// TestPodsOfFlannelsPlugin checks that attachments of flannel's plugin are detached here, and that
// flannel's plugin would find the files of ours.
func TestPodsOfFlannelsPlugin(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
	result := n.must("ADD", p, "eth0", conf)
	file := filepath.Join(n.dir, "state", "a")
	if err := os.Remove(file + ":eth0"); err != nil { // what is left has flannel's name and form
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var conf0 map[string]any
	if err := json.Unmarshal(b, &conf0); err != nil || conf0["type"] != "bridge" || conf0["name"] != "cbr0" {
		t.Errorf("flannel's plugin would read %s", b)
	}
	if err := os.Remove(filepath.Join(n.dir, "subnet.env")); err != nil {
		t.Fatal(err)
	}
	n.must("CHECK", p, "eth0", withPrev(conf, result))
	n.must("DEL", p, "net7", n.conf("1.0.0", "flannel", `"name":"other"`)) // not its own
	if _, err := os.Stat(file); err != nil {
		t.Errorf("another network's DEL took it: %v", err)
	}
	n.must("DEL", p, "eth0", conf)
	n.wantClean()
}

func TestUnreadableState(t *testing.T) {
	for _, name := range []string{"a:eth0", "a"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.subnet(env4)
			p, conf := n.pod("a"), n.conf("1.0.0", "flannel", "")
			result := n.must("ADD", p, "eth0", conf)
			for _, f := range n.state() {
				if err := os.Remove(filepath.Join(n.dir, "state", f)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(n.dir, "state", name), []byte(`{"name":"cbr`), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := n.run("CHECK", p.id, p.path(), "eth0", withPrev(conf, result)); err == nil ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("CHECK: %v", err)
			}
			env := filepath.Join(n.dir, "subnet.env")
			if err := os.Rename(env, env+".away"); err != nil {
				t.Fatal(err)
			}
			// No configuration says how the pod was attached: the DEL fails, and the file stays.
			if _, err := n.run("DEL", p.id, p.path(), "eth0", conf); code(err) != types.ErrTryAgainLater ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("DEL without a subnet: %v", err)
			}
			if len(n.state()) != 1 || len(n.reserved("cbr0")) != 1 {
				t.Errorf("state %q, reserved %q", n.state(), n.reserved("cbr0"))
			}
			if err := os.Rename(env+".away", env); err != nil {
				t.Fatal(err)
			}
			n.must("DEL", p, "eth0", conf)
			n.wantClean()
		})
	}
}

func TestCheck(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, conf := n.pod("a"), n.conf("1.1.0", "weft", "")
	result := n.must("ADD", p, "eth0", conf)
	n.must("CHECK", p, "eth0", withPrev(conf, result))
	refused := func(what, conf, want string) {
		t.Helper()
		if _, err := n.run("CHECK", p.id, p.path(), "eth0", conf); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want something with %q", what, err, want)
		}
	}
	refused("without a result", conf, "prevResult")
	refused("another network", withPrev(n.conf("1.1.0", "weft", `"name":"other"`), result), "cbr0")
	n.subnet(strings.ReplaceAll(env4, "10.244.3.", "10.244.9."))
	refused("a node with another subnet", withPrev(conf, result), "made anew")
	n.subnet(env4)
	l, err := p.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := p.Netlink().AddrList(l, 2)
	if err != nil || len(addrs) != 1 {
		t.Fatal(addrs, err)
	}
	if err := p.Netlink().AddrDel(l, &addrs[0]); err != nil {
		t.Fatal(err)
	}
	refused("an address that is gone", withPrev(conf, result), "10.244.3.2")
	n.must("DEL", p, "eth0", conf)
	refused("detached", withPrev(conf, result), "nothing is known")
}

// The configuration's version changes while a pod lives; its runtime then converts the result.
func TestVersionChanges(t *testing.T) {
	n := newNode(t)
	n.subnet(envDual)
	p := n.pod("a")
	made, err := create.Create("0.3.1", []byte(n.must("ADD", p, "eth0", n.conf("0.3.1", "flannel", ""))))
	if err != nil {
		t.Fatal(err)
	}
	newer, err := made.GetAsVersion("1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	var result bytes.Buffer
	if err := newer.PrintTo(&result); err != nil {
		t.Fatal(err)
	}
	conf := withPrev(n.conf("1.1.0", "flannel", ""), result.String())
	n.must("CHECK", p, "eth0", conf)
	n.must("DEL", p, "eth0", conf)
	n.wantClean()
}

// daemon is a weftd that has nothing but a status.
type daemon struct {
	control.Pages
	status control.Status
}

func (d daemon) Status() control.Status { return d.status }

// serve answers for a weftd on the node's socket until the test ends or stop is called.
func (n *node) serve(s control.Status) (stop func()) {
	n.t.Helper()
	return n.serveNode(control.Server{Pages: daemon{status: s}})
}

func (n *node) serveNode(d control.Server) (stop func()) {
	n.t.Helper()
	l, err := net.Listen("unix", filepath.Join(n.dir, "weftd.sock"))
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, l, d) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(stop)
	return stop
}

func TestWithoutSubnet(t *testing.T) {
	n := newNode(t)
	p, conf := n.pod("a"), n.conf("1.1.0", "weft", "")
	says := func(want ...string) {
		t.Helper()
		_, add := n.run("ADD", p.id, p.path(), "eth0", conf)
		_, status := n.run("STATUS", "", "", "", conf)
		for _, w := range want {
			for _, err := range []error{add, status} {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, without %q", err, w)
				}
			}
		}
		if code(add) != 11 || code(status) != 50 {
			t.Errorf("ADD's code is %d, that of STATUS %d", code(add), code(status))
		}
	}
	says(n.dir + "/weftd.sock")
	stop := n.serve(control.Status{Version: "v9",
		NotReady: []string{"etcd at x: connection refused", "no lease"}})
	says("v9", "etcd at x: connection refused", "no lease")
	n.subnet("FLANNEL_MTU=1450\n")
	says("FLANNEL_NETWORK", "connection refused")
	stop()
	if err := os.Remove(filepath.Join(n.dir, "subnet.env")); err != nil {
		t.Fatal(err)
	}
	n.serve(control.Status{Version: "v9", Ready: true})
	says("--subnet-file")
	n.wantClean()
}

func TestStatusOfDelegates(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	status := func(keys string) error {
		_, err := n.run("STATUS", "", "", "", n.conf("1.1.0", "weft", keys))
		return err
	}
	if err := status(""); err != nil {
		t.Errorf("weftd does not run, but has left a subnet: %v", err)
	}
	for keys, want := range map[string]string{
		`"delegate":{"type":"nonesuch"}`: `"nonesuch"`,
		`"ipam":{"type":"nonesuch"}`:     `"nonesuch"`,
	} {
		if err := status(keys); code(err) != 50 || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), n.path) {
			t.Errorf("with %s: %v", keys, err)
		}
	}
	bin := t.TempDir()
	n.path += ":" + bin
	script := `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
STATUS) echo '{"cniVersion":"1.1.0","code":51,"msg":"half broken"}'; exit 1 ;;
esac
`
	netns.Script(t, filepath.Join(bin, "new"), script)
	if err := status(`"delegate":{"type":"new"}`); code(err) != 51 ||
		!strings.Contains(err.Error(), "half broken") {
		t.Errorf("a delegate that knows STATUS: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p := n.pod("a")
	for _, c := range []struct {
		id, ns, ifname, conf string
		code                 uint
		want                 string
	}{
		{"../a", p.path(), "eth0", n.conf("1.0.0", "weft", ""), 4, "containerID"},
		{"a", p.path(), "../eth0", n.conf("1.0.0", "weft", ""), 4, "interface name"},
		{"a", p.path(), "a:b", n.conf("1.0.0", "weft", ""), 4, "interface name"},
		{"a", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.FD()), "eth0", n.conf("1.0.0", "weft", ""), 8, ""},
		{"a", p.path(), "eth0", n.conf("1.0.0", "weft", `"gsoMaxSize":5`), 7, "from 16384 to 65536"},
		{"a", p.path(), "eth0", n.conf("1.0.0", "weft", `"delegate":{"ipam":{}}`), 7, "delegate"},
		{"a", p.path(), "eth0", n.conf("9.9.9", "weft", ""), 1, "incompatible"},
		{"a", p.path(), "eth0", n.conf("1.0.0", "weft", `"delegate":{"type":"../bridge"}`), 7, "bridge"},
		{"a", p.path(), "eth0", n.conf("1.0.0", "weft", `"delegate":{"type":"nonesuch"}`), 999, "nonesuch"},
	} {
		if _, err := n.run("ADD", c.id, c.ns, c.ifname, c.conf); code(err) != c.code ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %s: got code %d: %v, want code %d and %q", c.id, c.ifname, c.conf, code(err), err,
				c.code, c.want)
		}
	}
	n.wantClean()
}

func TestGSOMaxSize(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	const kernels = 65536
	limit := func(id, keys string) (uint32, uint32) {
		t.Helper()
		p := n.pod(id)
		n.must("ADD", p, "eth0", n.conf("1.0.0", "weft", keys))
		l, err := p.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		b, err := n.Netlink().LinkByName("cni0")
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Attrs().GSOMaxSize; got != kernels {
			t.Errorf("the bridge's is %d", got)
		}
		return l.Attrs().GSOMaxSize, l.Attrs().GSOIPv4MaxSize
	}
	for i, c := range []struct {
		keys   string
		daemon control.Backend
		want   int
	}{
		{"", control.Backend{Type: "udp", Path: "raw"}, kernels},
		{`"gsoMaxSize":61564`, control.Backend{}, 61564},
		{`"gsoMaxSize":"auto"`, control.Backend{}, kernels},
		{`"gsoMaxSize":"auto"`, control.Backend{Type: "udp", Path: "raw"}, encap.GSOMaxSize(encap.FormatIP, 1450)},
		{`"gsoMaxSize":"auto"`, control.Backend{Type: "vxlan", Path: "socket"},
			encap.GSOMaxSize(encap.FormatVXLAN, 1450)},
		{`"gsoMaxSize":"auto"`, control.Backend{Type: "udp", Path: "portable"}, kernels},
		{`"gsoMaxSize":"auto"`, control.Backend{Type: "host-gw"}, kernels},
	} {
		stop := n.serve(control.Status{Ready: true, Backend: c.daemon})
		if six, four := limit(fmt.Sprint("p", i), c.keys); six != uint32(c.want) || four != uint32(c.want) {
			t.Errorf("%s with %+v: %d and %d for IPv4, want %d", c.keys, c.daemon, six, four, c.want)
		}
		stop()
	}
	if six, _ := limit("alone", `"gsoMaxSize":"auto"`); six != kernels {
		t.Errorf("auto without a weftd: %d", six)
	}
}

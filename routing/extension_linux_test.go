package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/test/await"
	"weft/test/netns"
)

// extTest is a directory with a script that notes how it was called.
type extTest struct {
	dir string
	t   *testing.T
}

func newExtTest(t *testing.T) extTest {
	t.Helper()
	e := extTest{t.TempDir(), t}
	const script = `#!/bin/sh
echo "$* [$NETWORK $SUBNET $IPV6SUBNET $PUBLIC_IP $PUBLIC_IPV6] $(cat | tr '\n' '|')" >>"${0%/*}/log"
test ! -e "${0%/*}/fail-$1"
`
	netns.Script(t, e.dir+"/run", script)
	return e
}

func (e extTest) config() string {
	b, err := json.Marshal(map[string]string{
		"Type": "extension", "PreStartupCommand": "echo our key", "PostStartupCommand": e.dir + "/run post $SUBNET",
		"ShutdownCommand":  e.dir + "/run shutdown",
		"SubnetAddCommand": e.dir + "/run add $SUBNET;reboot", "SubnetRemoveCommand": e.dir + "/run remove"})
	if err != nil {
		e.t.Fatal(err)
	}
	return fmt.Sprintf(`{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":%s}`, b)
}

// log is what ran since the last call.
func (e extTest) log() string {
	b, err := os.ReadFile(e.dir + "/log")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		e.t.Fatal(err)
	}
	_ = os.Remove(e.dir + "/log")
	return string(b)
}

func (e extTest) expect(want string) {
	e.t.Helper()
	if got := e.log(); got != want {
		e.t.Errorf("ran\n%swant\n%s", got, want)
	}
}

// fail makes calls with that first word fail, or work again.
func (e extTest) fail(word string, on bool) {
	name := e.dir + "/fail-" + word
	if !on {
		if err := os.Remove(name); err != nil {
			e.t.Fatal(err)
		}
	} else if err := os.WriteFile(name, nil, 0o600); err != nil {
		e.t.Fatal(err)
	}
}

func extRecord(n int, data string) lease.Record {
	r := vxlanPeer(n)
	b, _ := json.Marshal(data)
	r.BackendType, r.BackendData, r.BackendV6Data = typeExtension, b, nil
	return r
}

func TestExtension(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	e := newExtTest(t)
	state := t.TempDir()
	open := func() *kernelTest {
		return openKernelBackend(t, k, e.config(), func(c *BackendConfig) { c.StateDir = state })
	}
	b := open()
	if data, _ := b.Publish(); string(data) != `"our key"` || b.RecordType() != typeExtension {
		t.Errorf("published %s, %s", data, b.RecordType())
	}
	const hostile = "a b\n$(touch /tmp/x)'\"; reboot"
	b.start()
	b.apply(kernelSet(b, extRecord(2, hostile), extRecord(3, "")))
	e.expect(`post 10.5.1.0/24 [10.5.0.0/16 10.5.1.0/24 fd00:5:0:1::/64 192.0.2.1 2001:db8::1] |
add 10.5.2.0/24;reboot [ 10.5.2.0/24 fd00:5:0:2::/64 192.0.2.2 2001:db8::2] a b|$(touch /tmp/x)'"; reboot|
add 10.5.3.0/24;reboot [ 10.5.3.0/24 fd00:5:0:3::/64 192.0.2.3 2001:db8::3] |
`)
	b.apply(kernelSet(b, extRecord(2, hostile), extRecord(3, "")))
	e.expect("")
	b.apply(kernelSet(b, extRecord(3, "new")))
	e.expect(`remove [ 10.5.3.0/24 fd00:5:0:3::/64 192.0.2.3 2001:db8::3] |
add 10.5.3.0/24;reboot [ 10.5.3.0/24 fd00:5:0:3::/64 192.0.2.3 2001:db8::3] new|
remove [ 10.5.2.0/24 fd00:5:0:2::/64 192.0.2.2 2001:db8::2] a b|$(touch /tmp/x)'"; reboot|
`)
	if st := b.Status(); !st.InPlace || !st.Up || st.Path != "command" || st.MTU != 1500 || st.Peers != 1 {
		t.Errorf("status %+v", st)
	}

	e.fail("add", true)
	if err := b.Apply(t.Context(), kernelSet(b, extRecord(3, "new"), extRecord(4, "x"))); err == nil ||
		!strings.Contains(err.Error(), "SubnetAddCommand") {
		t.Errorf("a command that fails: %v", err)
	}
	if st := b.Status(); !st.InPlace || !st.Up || st.Peers != 1 || len(st.Skipped) != 1 ||
		!strings.Contains(st.LastError, "SubnetAddCommand") {
		t.Errorf("while it fails: %+v", st)
	}
	e.fail("add", false)
	await.OK(t, "tried again", func() error {
		if st := b.Status(); !st.InPlace || st.Peers != 2 {
			return errors.New(st.LastError)
		}
		return nil
	})
	e.log()
	b.stop()
	e.expect("shutdown [10.5.0.0/16 10.5.1.0/24 fd00:5:0:1::/64 192.0.2.1 2001:db8::1] |\n")

	// A restart adds again, and removes who left meanwhile.
	b = open()
	b.apply(kernelSet(b, extRecord(4, "x")))
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	got := e.log()
	if !strings.Contains(got, "add 10.5.4.0/24;reboot") || !strings.Contains(got, "\nremove [ 10.5.3.0/24") ||
		strings.Contains(got, "shutdown") {
		t.Errorf("after a restart ran\n%s", got)
	}

	// After another boot there is nothing to remove.
	stale, err := json.Marshal(extState{Boot: "another",
		Peers: []extPeer{{V4: pfx("10.5.9.0/24"), IP: addr("192.0.2.9")}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "extension.json"), stale, 0o600); err != nil {
		t.Fatal(err)
	}
	b = open()
	b.apply(kernelSet(b))
	if got := e.log(); strings.Contains(got, "remove") {
		t.Errorf("after a boot ran\n%s", got)
	}
	_ = b.Close()
}

func TestExtensionStart(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	network,
		err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"false"}}`))
	if err != nil {
		t.Fatal(err)
	}
	u := underlay.Link{Name: "eth0", MTU: 1500, Addr4: addr("192.0.2.1"), Ext4: addr("192.0.2.1")}
	if _, err := NewNode(t.Context(), BackendConfig{Kernel: k, Network: network, Underlay: u,
		MayRunCommands: func() error { return nil }}); err == nil ||
		!strings.Contains(err.Error(), "PreStartupCommand") {
		t.Errorf("PreStartup fails: %v", err)
	}
	e := newExtTest(t)
	e.fail("post", true)
	b := openKernelBackend(t, k,
		fmt.Sprintf(`{"Network":"10.5.0.0/16","Backend":{"Type":"extension","PostStartupCommand":"%s/run post"}}`,
			e.dir), nil)
	defer func() { _ = b.Close() }()
	set := kernelSet(b, extRecord(2, ""))
	set.Peers[0].V6 = netip.Prefix{}
	if err := b.Apply(t.Context(), set); !errors.Is(err, errNotStarted) || b.Status().Up {
		t.Errorf("PostStartup fails: %v, %+v", err, b.Status())
	}
	e.fail("post", false)
	b.apply(set)
	if st := b.Status(); !st.Up {
		t.Errorf("%+v", st)
	}
}

func TestAlloc(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	before := ip(t, "-d link show") + ip(t, "route show")
	b := openKernelBackend(t, k, `{"Network":"10.5.0.0/16","Backend":{"Type":"alloc","MTU":1400}}`, nil)
	b.start()
	b.apply(kernelSet(b, vxlanPeer(2)))
	st := b.Status()
	data, v6data := b.Publish()
	if !st.Up || !st.InPlace || st.MTU != 1400 || st.Path != "none" || b.RecordType() != "" || data != nil ||
		v6data != nil {
		t.Errorf("status %+v, record %q %s", st, b.RecordType(), data)
	}
	if after := ip(t, "-d link show") + ip(t, "route show"); after != before {
		t.Errorf("it changed something:\n%s\n%s", before, after)
	}
}

// A command that is ended says why: its own time was over, or nobody needs it any more, whatever the reason
// that the caller has for that.
func TestACommandThatIsEndedSaysWhy(t *testing.T) {
	k, err := kernel.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	r := &extRunner{k: k, log: slog.New(slog.DiscardHandler)}
	if _, err := r.run(t.Context(), 50*time.Millisecond, "SubnetAddCommand", "sleep 60", nil, ""); err == nil ||
		!strings.Contains(err.Error(), "50ms") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("restart to apply it")) })
	_, err = r.run(ctx, time.Minute, "SubnetAddCommand", "sleep 60", nil, "")
	if err == nil || !strings.Contains(err.Error(), "weftd") || strings.Contains(err.Error(), "restart") ||
		strings.Contains(err.Error(), "1m0s") {
		t.Errorf("%v", err)
	}
}

// Nothing runs where the daemon has not said that it may.
func TestExtensionIsRefused(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	made := t.TempDir() + "/made"
	network,
		err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"touch ` +
		made + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Choose(k, underlay.Options{IPv4: true, Interfaces: []string{"eth0"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, may := range map[string]func() error{
		"nobody said": nil, "refused": func() error { return errors.New("anyone may write it") }} {
		_, err := NewNode(t.Context(), BackendConfig{Kernel: k, Network: network, Underlay: u, MayRunCommands: may})
		if !errors.Is(err, ErrCommandsRefused) || may != nil && !strings.Contains(err.Error(), "anyone") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(made); err == nil {
			t.Errorf("%s: the command ran", name)
		}
	}
}

// What the daemon knows of the store's password, commands do not, nor what they print or fail with.
func TestCommandsGetNoSecrets(t *testing.T) {
	k := aloneInNamespace(t) // it sets the environment
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	names := []string{"WEFTD_ETCD_PASSWORD", "FLANNELD_ETCD_PASSWORD", "ETCDCTL_PASSWORD", "ETCDCTL_USER",
		"KUBE_TOKEN", "MY_SECRET",
		"DB_PW", "SIG", "API_KEY"}
	for _, name := range names {
		t.Setenv(name, "hunter2")
	}
	t.Setenv("FLANNELD_IFACE", "eth0")
	data := func(command string) string {
		b := openKernelBackend(t, k,
			fmt.Sprintf(`{"Network":"10.5.0.0/16","Backend":{"Type":"extension","PreStartupCommand":%q}}`, command),
			nil)
		data, _ := b.Publish()
		return string(data)
	}
	if got := data("env"); strings.Contains(got, "hunter2") || !strings.Contains(got, "FLANNELD_IFACE=eth0") ||
		!strings.Contains(got, "PATH=") {
		t.Errorf("the environment of a command: %s", got)
	}
	if got := data("echo x $" + strings.Join(names, "$") + " y"); got != `"x  y"` {
		t.Errorf("expanded: %s", got)
	}
}

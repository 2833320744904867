package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/lease/subnetenv"
	"weft/test/await"
	"weft/test/netns"
	"weft/test/systemdtest"
)

// host is a node with a namespace and a directory of its own, in which a weftd may run.
type host struct {
	name string
	ns   *netns.Namespace
	dir  string
	args []string
	env  []string // variables besides the test's own

	manager *systemdtest.Manager // starts its weftd and keeps descriptors; nil for nobody
	ports   int                  // how many it has for the next weftd

	cmd *exec.Cmd
	log buffer
}

// buffer is written by the process's copier and read by the test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pair makes two hosts as wired does; the weftd of the first has the store.
func pair(t *testing.T) (a, b *host) {
	t.Helper()
	return pairOf(t, `{"Type":"udp"}`)
}

// pairOf is pair with another backend.
func pairOf(t *testing.T, backend string) (a, b *host) {
	t.Helper()
	a, b = wired(t)
	netconf := filepath.Join(a.dir, "net.json")
	if err := os.WriteFile(netconf, []byte(`{"Network":"10.42.0.0/16","Backend":`+backend+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a.args = append(a.args, "--embedded-etcd", "--embedded-etcd-dir", a.dir+"/etcd",
		"--embedded-etcd-listen=192.0.2.1:2379",
		"--embedded-etcd-insecure", "--net-config-path", netconf)
	b.args = append(b.args, "--etcd-endpoints=http://192.0.2.1:2379")
	return a, b
}

// wired makes two hosts joined by a wire, 192.0.2.1 and 192.0.2.2.
func wired(t *testing.T) (a, b *host) {
	t.Helper()
	netns.TUN(t)
	a, b = newHost(t, "a"), newHost(t, "b")
	wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0",
		PeerNamespace: netlink.NsFd(b.ns.FD())}
	if err := a.ns.Netlink().LinkAdd(wire); err != nil {
		t.Fatal(err)
	}
	for i, h := range []*host{a, b} {
		link, err := h.ns.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		addr, err := netlink.ParseAddr(fmt.Sprintf("192.0.2.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(h.ns.Netlink().AddrAdd(link, addr), h.ns.Netlink().LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{name: name, ns: netns.New(t, name), dir: t.TempDir(), ports: 2}
	h.args = []string{"--iface=eth0", "--node-id=" + name, "--node-name=" + name, "--subnet-file", h.file(),
		"--cache-dir", h.dir + "/cache",
		"--control-socket", h.socket(), "--healthz-port=8471", "--healthz-ip=127.0.0.1"}
	t.Cleanup(func() {
		if h.cmd != nil {
			_ = h.cmd.Process.Kill()
			_ = h.cmd.Wait()
		}
		// else it would end when its directory is gone
		_, _, _ = custody.End(context.Background(), custody.SocketFor(h.socket()))
		if t.Failed() {
			t.Logf("%s's log:\n%s", name, h.log.String())
		}
	})
	return h
}

func (h *host) file() string   { return h.dir + "/run/subnet.env" }
func (h *host) socket() string { return h.dir + "/weftd.sock" }

// start runs weftd; extra arguments win over the host's own.
func (h *host) start(t *testing.T, extra ...string) {
	t.Helper()
	h.cmd = h.command(extra...)
	h.cmd.Stdout, h.cmd.Stderr = &h.log, &h.log
	if h.manager != nil {
		release, err := h.manager.Hand(h.cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if err := h.ns.Start(h.cmd); err != nil {
		t.Fatal(err)
	}
}

func (h *host) command(extra ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append(append([]string{}, h.args...), extra...)...)
	cmd.Env = append(append(os.Environ(), asWeftd+"=1"), h.env...)
	cmd.WaitDelay = 20 * time.Second // a successor that nobody ended has its output open
	if os.Getenv("GORACE") == "" {
		// a process under the race detector sleeps for a second before it ends, while packets wait
		cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	return cmd
}

// stop ends weftd with sig and returns its exit status, -1 if the signal did it.
func (h *host) stop(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if err := h.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = h.cmd.Wait() // the status is what is asked for
	code := h.cmd.ProcessState.ExitCode()
	h.cmd = nil
	return code
}

// status asks the control socket.
func (h *host) status(t *testing.T) (control.Status, error) {
	return control.NewClient(h.socket()).Status(t.Context())
}

func (h *host) awaitReady(t *testing.T) control.Status {
	t.Helper()
	var s control.Status
	await.OK(t, h.name+" ready", func() (err error) {
		if s, err = h.status(t); err == nil && !s.Ready {
			err = fmt.Errorf("not ready: %q", s.NotReady)
		}
		return err
	})
	return s
}

// inner is the host's address on the overlay.
func (h *host) inner(t *testing.T) netip.Addr {
	t.Helper()
	f, err := subnetenv.Read(h.file())
	if err != nil {
		t.Fatal(err)
	}
	return f.Subnet.Masked().Addr()
}

// reaches sends datagrams from h to to's overlay address until one arrives.
func (h *host) reaches(t *testing.T, to *host) {
	t.Helper()
	h.reachesAt(t, to, h.inner(t), to.inner(t))
}

// reachesAt sends them from and to certain addresses on the overlay.
func (h *host) reachesAt(t *testing.T, to *host, src, at netip.Addr) {
	t.Helper()
	var in, out *net.UDPConn
	dst := net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0))
	if err := to.ns.Do(func() (err error) { in, err = net.ListenUDP("udp", dst); return err }); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	port := in.LocalAddr().(*net.UDPAddr)
	if err := h.ns.Do(func() (err error) { out, err = net.DialUDP("udp", nil, port); return err }); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	await.OK(t, h.name+" reaches "+to.name, func() error {
		if _, err := out.Write([]byte("over the overlay")); err != nil {
			return err
		}
		if err := in.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return err
		}
		_, from, err := in.ReadFromUDPAddrPort(make([]byte, 100))
		if err == nil && from.Addr() != src {
			err = fmt.Errorf("from %v, want %v", from.Addr(), src)
		}
		return err
	})
}

// get asks the health server inside the namespace.
func (h *host) get(t *testing.T, path string) (int, string, error) {
	t.Helper()
	client := http.Client{Timeout: await.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return h.ns.Dial(ctx, network, addr)
		},
	}}
	resp, err := client.Get("http://127.0.0.1:8471" + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

package netns_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
	testns "weft/test/netns"
)

func TestMain(m *testing.M) { testns.Main(m) }

func linkNames(t *testing.T, h *netlink.Handle) string {
	t.Helper()
	links, err := h.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return strings.Join(names, " ")
}

func TestDevicesStayInside(t *testing.T) {
	a, b := testns.New(t, "a"), testns.New(t, "b")
	err := a.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "left"}, PeerName: "right", PeerNamespace: netlink.NsFd(b.FD()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := linkNames(t, a.Netlink()); got != "lo left" {
		t.Errorf("a has %q", got)
	}
	if got := linkNames(t, b.Netlink()); got != "lo right" {
		t.Errorf("b has %q", got)
	}
	if _, err := net.InterfaceByName("left"); err == nil {
		t.Error("the host has the device too")
	}
}

func TestSocketsAndProcessesAreInside(t *testing.T) {
	a, b := testns.New(t, "a"), testns.New(t, "b")
	var l net.Listener
	err := a.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := a.Dial(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("dial within a: %v", err)
	}
	_ = c.Close()
	if c, err := b.Dial(ctx, "tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("b reached a listener on a's loopback")
	}

	cmd := exec.Command("readlink", "/proc/self/ns/net")
	var out strings.Builder
	cmd.Stdout = &out
	if err := a.Run(cmd); err != nil {
		t.Fatal(err)
	}
	var want string
	if err := a.Do(func() (err error) { want, err = os.Readlink("/proc/thread-self/ns/net"); return err }); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != want {
		t.Errorf("process ran in %s, want %s", got, want)
	}
}

func TestSysShowsTheNamespacesDevices(t *testing.T) {
	a := testns.New(t, "a")
	cmd := exec.Command("ls", "/sys/class/net")
	var out strings.Builder
	cmd.Stdout = &out
	if err := a.Run(cmd); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != "lo" {
		t.Errorf("/sys/class/net has %q", got)
	}
}

func TestCloseKillsProcesses(t *testing.T) {
	a := testns.New(t, "a")
	cmd := exec.Command("sleep", "1000")
	if err := a.Start(cmd); err != nil {
		t.Fatal(err)
	}
	a.Close()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), unix.SIGKILL.String()) {
		t.Errorf("wait: %v, want killed", err)
	}
	if err := a.Do(func() error { return nil }); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("Do after Close: %v, want %v", err, netns.ErrClosed)
	}
	if _, err := a.Dial(t.Context(), "tcp", "127.0.0.1:1"); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("Dial after Close: %v, want %v", err, netns.ErrClosed)
	}
	a.Close()
}

func TestSysctlIsTheNamespacesOwn(t *testing.T) {
	a, b := testns.New(t, "a"), testns.New(t, "b")
	if err := a.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	read := func(n *netns.Namespace) (v string) {
		err := n.Do(func() error {
			b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
			v = strings.TrimSpace(string(b))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := read(a); got != "1" {
		t.Errorf("a forwards: %s", got)
	}
	if got := read(b); got != "0" {
		t.Errorf("b forwards: %s", got)
	}
}

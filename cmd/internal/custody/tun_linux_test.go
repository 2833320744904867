package custody

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/netns"
)

// pod is a namespace with a TUN in it.
type pod struct {
	ns  *netns.Namespace
	tun int
}

// newPod makes a TUN outside, and moves its device into a new namespace.
func newPod(t *testing.T, n int) *pod {
	t.Helper()
	netns.TUN(t)
	ns := netns.New(t, fmt.Sprint("pod", n))
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{ns: ns, tun: fd}
	t.Cleanup(func() { _ = unix.Close(fd) })
	r, err := unix.NewIfreq("")
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(r.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetNsFd(link, ns.FD()); err != nil {
		t.Fatal(err)
	}
	if link, err = ns.Netlink().LinkByName(r.Name()); err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(fmt.Sprintf("198.18.77.%d/24", n))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ns.Netlink().AddrAdd(link, addr), ns.Netlink().LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	return p
}

// A pod that ends takes its device with it, though its TUN is kept: the next weftd is not given it.
func TestAPodThatEndsIsDropped(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := n.weftd()
	p := newPod(t, 3)
	keepOne(t, c, "a", "", p.tun)
	r, _ := pipe(t)
	keepOne(t, c, "no TUN", "", r)
	c.Close()
	p.ns.Close()
	await.True(t, "the device is gone", func() bool { return gone(p.tun) })
	if gone(r) {
		t.Error("a pipe is taken for a TUN")
	}
	c = n.weftd()
	if items, _ := c.Take(""); len(items) != 1 || items[0].Name != "no TUN" {
		t.Errorf("%+v", items)
	}
	if err := c.Wait(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if rep, err := n.look(); err != nil || rep.Descriptors != 1 {
		t.Errorf("%+v %v", rep, err)
	}
}

// What has waited in a TUN's queue for long is discarded, what has waited for a moment is not.
func TestStalePacketsAreDiscarded(t *testing.T) {
	t.Parallel()
	p := newPod(t, 5)
	var u net.Conn
	if err := p.ns.Do(func() (err error) { u, err = net.Dial("udp", "198.18.77.99:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	drain(p.tun) // of IPv6's own
	fill := func() {
		for range 10 {
			if _, err := u.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for away, want := range map[time.Duration]bool{StaleAfter: false, StaleAfter + 1: true} {
		fill()
		c := &Custody{items: map[string]entry{}}
		c.adopt(entry{Name: "a", Numbers: []uint64{1}, fds: []int{p.tun}}, map[uint64]int{}, true, away)
		if c.discarded >= 10 != want {
			t.Errorf("%d are discarded after %v", c.discarded, away)
		}
		if left := drain(p.tun); left >= 10 == want {
			t.Errorf("%d are left after %v", left, away)
		}
	}
	r, w := pipe(t)
	if _, err := unix.Write(w, []byte("x")); err != nil || drain(r) != 0 {
		t.Error("something else than a TUN is emptied")
	}
}

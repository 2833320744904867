package encap

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Offloads of a TAP (linux/if_tun.h): all, with tunnel GSO and its outer checksum.
const allOffloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN |
	unix.TUN_F_USO4 | unix.TUN_F_USO6 | 0x80 | 0x100

// wire is a namespace where what is written to TAP in leaves at TAP out, by a
// bridge: whole if out takes that, else cut and summed by the kernel.
type wire struct{ in, out int }

// newWire makes one. offload is what out takes. It needs root, and Linux 6.17.
func newWire(t testing.TB, offload int) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and TAP devices: run it as root (make test does)")
	}
	w, done := &wire{-1, -1}, make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as in newRouter
		done <- w.setUp(offload)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(w.in), unix.Close(w.out) })
	return w
}

func (w *wire) setUp(offload int) error {
	ns, err := netns.New()
	if err != nil {
		return fmt.Errorf("new network namespace: %w", err)
	}
	defer ns.Close()
	for _, conf := range []string{"all", "default"} { // the wire is to be silent
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+conf+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
	}
	if w.in, err = openTAP("in", allOffloads); err != nil {
		return err
	}
	if w.out, err = openTAP("out", offload); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	for _, name := range []string{"in", "out"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("%s into the bridge: %w", name, err)
		}
		if err := errors.Join(netlink.LinkSetTxQLen(link, 2000), netlink.LinkSetUp(link)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return netlink.LinkSetUp(bridge)
}

// openTAP opens a TAP with the virtio-net header of tunnel GSO.
func openTAP(name string, offload int) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, fmt.Errorf("TUNSETIFF %s: %w", name, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, VNetTunnelHdrLen); err != nil {
		return -1, fmt.Errorf("TUNSETVNETHDRSZ %s: %w", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload); err != nil {
		return -1, fmt.Errorf("TUNSETOFFLOAD %s %#x, which needs Linux 6.17: %w", name, offload, err)
	}
	return fd, nil
}

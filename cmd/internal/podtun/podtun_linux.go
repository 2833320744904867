package podtun

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// Gateway6 is the gateway of the routes of IPv6. It is no address of any device; its neighbour entry is
// permanent.
func Gateway6() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 15: 1}) }

// Spec says what a pod's interface has to be.
type Spec struct {
	// Netns is the path of the pod's network namespace.
	Netns string
	// Name is the interface's in the pod.
	Name string
	// Addresses are the pod's own.
	Addresses []netip.Addr
	// MTU is in bytes.
	MTU int
	// Routes are the destinations that lead into the overlay. Those of a family without an address are left out.
	Routes []netip.Prefix
}

// temporary is what the TUN is called until it is in the pod's namespace; the kernel puts a number there.
const temporary = "weft-new%d"

// queueLen is how many packets wait in the TUN for weftd before the kernel drops the next one: as many as in
// the host's TUN. The kernel's own default is 500. A flood of small packets overflows there, while the worker
// waits for its CPU. The queue's memory is in nobody's socket buffer, 64 KB for a superpacket, so its length
// bounds a pod's use of the host's memory.
const queueLen = 1000

// Make makes the interface and returns its descriptor, which the caller owns. An error means that nothing is
// left of it. The error wraps fs.ErrExist if the pod has such an interface already.
func Make(s Spec) (tun *os.File, err error) {
	ns, err := os.Open(s.Netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	tun, name, err := open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tun.Close()) // with which the device goes: it is not persistent yet
			tun = nil
		}
	}()
	l, err := netlink.LinkByName(name)
	if err != nil {
		return tun, fmt.Errorf("tun %s: %w", name, err)
	}
	if err := netlink.LinkSetNsFd(l, int(ns.Fd())); err != nil {
		return tun, fmt.Errorf("move the TUN into %s: %w", s.Netns, err)
	}
	if err := ownthread.In(int(ns.Fd()), func() error { return s.configure(name) }); err != nil {
		return tun, fmt.Errorf("%s in %s: %w", s.Name, s.Netns, err)
	}
	if err := unix.IoctlSetInt(int(tun.Fd()), unix.TUNSETPERSIST, 1); err != nil {
		return tun, fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return tun, nil
}

// open opens a new TUN in the caller's namespace.
func open() (tun *os.File, name string, err error) {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w (%s)", device, err, remedy(err))
	}
	req, err := unix.NewIfreq(temporary)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("make a TUN: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), device), req.Name(), nil
}

// remedy is what to do where the device cannot be opened.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EACCES):
		return "it is not this user's to open: its usual mode is 0666, which harms nobody, so as root: chmod " +
			"0666 /dev/net/tun"
	case errors.Is(err, unix.EPERM):
		return "the control group of this container or unit forbids the device 10:200: allow it"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "too many descriptors are open"
	}
	return "load the module tun, or in a container pass the device on"
}

// configure runs in the pod's namespace.
func (s Spec) configure(temporary string) error {
	l, err := netlink.LinkByName(temporary)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetName(l, s.Name); errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("the pod has an interface of that name: %w", fs.ErrExist)
	} else if err != nil {
		return fmt.Errorf("name it: %w", err)
	}
	if err := netlink.LinkSetMTU(l, s.MTU); err != nil {
		return fmt.Errorf("MTU %d: %w", s.MTU, err)
	}
	if err := netlink.LinkSetTxQLen(l, queueLen); err != nil {
		return fmt.Errorf("txqueuelen %d: %w", queueLen, err)
	}
	six := slices.ContainsFunc(s.Addresses, netip.Addr.Is6)
	if err := settings(s.Name, six); err != nil && six {
		return err
	}
	for _, a := range s.Addresses {
		addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen()))}
		if a.Is6() {
			addr.Flags = unix.IFA_F_NODAD // nobody else can have it: weftd knows whose it is
		}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set it up: %w", err)
	}
	if six {
		n := &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V6, State: netlink.NUD_PERMANENT,
			IP: Gateway6().AsSlice()}
		if err := netlink.NeighSet(n); err != nil {
			return fmt.Errorf("neighbour %s: %w", Gateway6(), err)
		}
	}
	for _, dst := range s.routes() {
		if err := netlink.RouteReplace(route(l, dst)); err != nil {
			return fmt.Errorf("route to %s: %w", dst, err)
		}
	}
	return nil
}

// routes are those of families that the pod has an address of.
func (s Spec) routes() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(s.Routes), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(s.Addresses, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
	})
}

func route(l netlink.Link, dst netip.Prefix) *netlink.Route {
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(dst.Masked()), Scope: netlink.SCOPE_LINK}
	if dst.Addr().Is6() {
		r.Scope, r.Gw = netlink.SCOPE_UNIVERSE, Gateway6().AsSlice()
	}
	return r
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// settings lets the interface have addresses of IPv6 if the pod is to have them, and no others than those: an
// address that the kernel makes up would be one that the pod may not send from.
func settings(name string, six bool) error {
	dir := filepath.Join("/proc/sys/net/ipv6/conf", name)
	off := "1"
	if six {
		off = "0"
	}
	var faults []error
	for _, s := range [][2]string{{"addr_gen_mode", "1"}, {"accept_ra", "0"}, {"disable_ipv6", off}} {
		if err := os.WriteFile(filepath.Join(dir, s[0]), []byte(s[1]), 0); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// Remove deletes the interface from the pod's namespace. It is no error if the namespace or the interface is
// gone. An interface of that name that is no TUN is somebody else's, and an error.
func Remove(netns, name string) error {
	ns, err := os.Open(netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	return ownthread.In(int(ns.Fd()), func() error {
		l, err := netlink.LinkByName(name)
		if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
			return nil
		}
		if err != nil {
			return err
		}
		if !isTUN(l) {
			return fmt.Errorf("%s in %s is a %s and no TUN: it is not what was attached, and stays", name,
				netns, l.Type())
		}
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete %s in %s: %w", name, netns, err)
		}
		return nil
	})
}

func isTUN(l netlink.Link) bool {
	t, ok := l.(*netlink.Tuntap)
	return ok && t.Mode == netlink.TUNTAP_MODE_TUN
}

// OpenSettings opens the files in sysfs of those settings of the interface, for reading and writing. With
// them and CAP_NET_ADMIN over the pod's network namespace a process changes the settings without entering it,
// and does not keep it alive, as a socket would. It takes the rights to mount (CAP_SYS_ADMIN), and Linux 5.2.
func OpenSettings(netns, name string, settings []string) (files []*os.File, err error) {
	ns, err := os.Open(netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	err = ownthread.In(int(ns.Fd()), func() error {
		// a sysfs is that of the network namespace that it was mounted in
		files, err = openSettings(name, settings)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("settings of %s in %s: %w", name, netns, err)
	}
	return files, nil
}

func openSettings(name string, settings []string) (files []*os.File, err error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(fs) }() // what it was for has been mounted
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer func() { _ = unix.Close(mount) }() // the files keep what they need
	for _, setting := range settings {
		path := filepath.Join("class", "net", name, setting)
		fd, err := unix.Openat(mount, path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("sysfs: %s: %w", path, err)
		}
		files = append(files, os.NewFile(uintptr(fd), path))
	}
	return files, nil
}

package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// Kernel is the netlink edge to one network namespace, the one that it was opened
// in, whichever thread uses it later. It is safe for concurrent use.
type Kernel struct {
	h  *netlink.Handle
	NS int // descriptor of the namespace, for what has no netlink: /proc/sys, /dev/net/tun, sockets
	id nsID
	// VXLANKind is the kind of link that ProbeVXLAN asks for; a test sets it to something other than "vxlan".
	VXLANKind string
	// WireGuardKind is the same for ProbeWireGuard.
	WireGuardKind string
	// RunKind is the kind of frame that ProbeFrames sends; a test sets one that no kernel has. 0 is that of a
	// run of datagrams.
	RunKind uint8
}

// nsID identifies a namespace: device and inode of its file (namespaces(7)).
type nsID struct{ dev, ino uint64 }

// threadNS names the namespace of the calling thread; the process's own link
// shows the main thread's.
const threadNS = "/proc/thread-self/ns/net"

// netlinkTimeout bounds one answer of the kernel. A dump of 100,000 routes comes
// in many datagrams, and the bound is for each.
const netlinkTimeout = 10 * time.Second

// OpenKernel opens the namespace of the calling thread. The caller closes it.
func OpenKernel() (*Kernel, error) {
	ns, err := unix.Open(threadNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", threadNS, err)
	}
	k := &Kernel{NS: ns}
	if k.id, err = statNS(); err != nil {
		return nil, errors.Join(err, unix.Close(ns))
	}
	if k.h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), unix.Close(ns))
	}
	if err := k.h.SetSocketTimeout(netlinkTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("netlink socket timeout: %w", err), k.Close())
	}
	// Kernels from 4.20 on then filter route dumps themselves. Older ones send the
	// whole table, which is filtered here again anyway.
	_ = k.h.SetStrictCheck(true)
	return k, nil
}

// OpenKernelIn opens the namespace of a descriptor, which stays the caller's.
func OpenKernelIn(ns int) (k *Kernel, err error) {
	err = ownthread.In(ns, func() (err error) {
		k, err = OpenKernel()
		return err
	})
	return k, err
}

// Close frees the descriptors. No other method may be in use or called afterwards.
func (k *Kernel) Close() error {
	if k.h != nil {
		k.h.Close()
		k.h = nil
	}
	return unix.Close(k.NS)
}

func statNS() (nsID, error) {
	var st unix.Stat_t
	if err := unix.Stat(threadNS, &st); err != nil {
		return nsID{}, fmt.Errorf("stat %s: %w", threadNS, err)
	}
	return nsID{st.Dev, st.Ino}, nil
}

// Do runs f on a thread that is in the namespace. In a daemon that is the calling
// thread. Only a process that works in several namespaces pays for another one,
// which ends after f, since it cannot return to its first namespace.
func (k *Kernel) Do(f func() error) error {
	if id, err := statNS(); err != nil {
		return err
	} else if id == k.id {
		return f()
	}
	return ownthread.In(k.NS, f)
}

// Device is a link as the kernel shows it.
type Device struct {
	Link
	Index int
	// Kind is the driver's name, as in ip -d link: vlan, bond, bridge, veth; "device" for hardware, and what has
	// none. TUNs and TAPs have one driver, and are "tun" and "tap", or "tuntap" where an old kernel does not say
	// which.
	Kind string
	// Parent is the link that it stands on, Master the one that it is a port of, by number; 0 for none. A Parent
	// in another namespace is not one.
	Parent, Master int
	Dropped        uint64
}

// ErrNoLink is for a device that does not exist.
var ErrNoLink = errors.New("no such link")

// link looks up a link by name. The error wraps ErrNoLink if there is none.
func (k *Kernel) link(name string) (netlink.Link, error) {
	l, err := k.h.LinkByName(name)
	return l, noLink("link "+name, err)
}

func noLink(what string, err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = ErrNoLink
	}
	return Wrap(what, err)
}

// Device looks up one link by name. The error wraps ErrNoLink if there is none.
func (k *Kernel) Device(name string) (Device, error) {
	l, err := k.link(name)
	if err != nil {
		return Device{}, err
	}
	return DeviceOf(l), nil
}

// DeviceAt looks up one link by number. The error wraps ErrNoLink if there is none.
func (k *Kernel) DeviceAt(index int) (Device, error) {
	l, err := k.h.LinkByIndex(index)
	if err != nil {
		return Device{}, noLink(fmt.Sprint("link ", index), err)
	}
	return DeviceOf(l), nil
}

// Devices lists all links.
func (k *Kernel) Devices() ([]Device, error) {
	ls, err := k.Links()
	ds := make([]Device, len(ls))
	for i, l := range ls {
		ds[i] = DeviceOf(l)
	}
	return ds, err
}

// DeviceOf is a link in our form.
func DeviceOf(l netlink.Link) Device {
	a := l.Attrs()
	d := Device{
		Link: Link{Name: a.Name, Alias: a.Alias, MTU: a.MTU, TxQueueLen: a.TxQLen,
			Up: a.RawFlags&unix.IFF_UP != 0},
		Index: a.Index, Kind: l.Type(), Parent: a.ParentIndex, Master: a.MasterIndex,
	}
	if t, ok := l.(*netlink.Tuntap); ok && t.Mode == netlink.TUNTAP_MODE_TUN {
		d.Kind = "tun"
	} else if ok && t.Mode == netlink.TUNTAP_MODE_TAP {
		d.Kind = "tap"
	}
	if a.NetNsID >= 0 || d.Kind == "veth" { // the other end of a veth is no parent
		d.Parent = 0
	}
	if a.Statistics != nil {
		d.Dropped = a.Statistics.TxDropped
	}
	return d
}

// SetLink makes alias, MTU, queue length and state of an existing link those of l, with
// one call for each that differs.
func (k *Kernel) SetLink(l Link) error {
	nl, err := k.h.LinkByName(l.Name)
	if err != nil {
		return err
	}
	have := DeviceOf(nl).Link
	var errs []error
	if have.Alias != l.Alias {
		errs = append(errs, Wrap("alias", k.h.LinkSetAlias(nl, l.Alias)))
	}
	if have.MTU != l.MTU {
		errs = append(errs, Wrap(fmt.Sprintf("mtu %d", l.MTU), k.h.LinkSetMTU(nl, l.MTU)))
	}
	if have.TxQueueLen != l.TxQueueLen {
		errs = append(errs, Wrap(fmt.Sprintf("txqueuelen %d", l.TxQueueLen), k.h.LinkSetTxQLen(nl, l.TxQueueLen)))
	}
	switch {
	case l.Up && !have.Up:
		errs = append(errs, Wrap("up", k.h.LinkSetUp(nl)))
	case !l.Up && have.Up:
		errs = append(errs, Wrap("down", k.h.LinkSetDown(nl)))
	}
	return errors.Join(errs...)
}

// Wrap prefixes err with what; it returns nil for nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// LowPort is err, of binding a port, with what to do if it says that the process may not have the port.
func LowPort(err error) error {
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	return fmt.Errorf("%w: below net.ipv4.ip_unprivileged_port_start, mostly 1024, it takes "+
		"CAP_NET_BIND_SERVICE, which this weftd does not have: "+
		"give it to its unit or container, or give the network a Backend.Port above 1023 (ListenPort, with type "+
		"wireguard)", err)
}

// dump repeats a listing that a change interrupted, as the kernel says. After a few
// tries the listing is used as it is: the change is notified, and reconciling starts anew.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	const tries = 4
	for i := 1; ; i++ {
		l, err := list()
		if err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return l, err
		}
		if i == tries {
			return l, nil
		}
	}
}

// fromIP converts an address of netlink; the zero Addr for none.
func fromIP(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// Links lists all links as the library has them, for callers that need to know the kind of each.
func (k *Kernel) Links() ([]netlink.Link, error) {
	ls, err := dump(func() ([]netlink.Link, error) { return k.h.LinkList() })
	return ls, Wrap("list links", err)
}

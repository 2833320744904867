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
	// lax is h without strict checks: of neighbours, the library's requests are refused by them now and then,
	// since they have uninitialized padding.
	lax *netlink.Handle
	// Lacks, which tests set, are kinds of devices that Probe says this kernel does not have.
	Lacks []string
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
	for _, h := range []**netlink.Handle{&k.h, &k.lax} {
		if *h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
			err = (*h).SetSocketTimeout(netlinkTimeout)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open netlink socket: %w", err), k.Close())
		}
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
	for _, h := range []*netlink.Handle{k.h, k.lax} {
		if h != nil {
			h.Close()
		}
	}
	k.h, k.lax = nil, nil
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

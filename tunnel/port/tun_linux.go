package port

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// TUNOptions describes the TUN device to open.
type TUNOptions struct {
	// Name is the device's name, or a template such as "flannel%d". An existing device is attached to, and keeps
	// its addresses and routes.
	Name string
	// Transient removes the device when it is closed. Otherwise the device is persistent: without a process it
	// keeps its addresses and routes. The kernel then drops packets there, which would otherwise leak to the
	// default route.
	Transient bool
	// Queues is the number of workers that read the device in parallel; 0 means 1. An existing device with a
	// single queue keeps it until it is deleted. An existing multi-queue device gets as many as requested.
	Queues int
	// Off switches offloads off; only OpenOffloadTUN uses it. Logger logs when an offload is lost, and nil
	// discards.
	Off    OffloadSet
	Logger *slog.Logger
	// From, if not nil, is the device of an earlier port. The new port takes over its queues and the packets in
	// them. On error the descriptors are closed. The error wraps ErrUnfit if the device is not the requested
	// one.
	From *Kept
}

// TUN is a TUN device. As a port it moves one IP packet per read and write, without a virtio-net header. It
// is safe for concurrent use.
type TUN struct {
	name string
	fd   int
	fds  []int // of the queues; fds[0] is fd
	// requested is the number of queues requested.
	requested int
	shut      sync.Once
}

// OpenTUN opens or attaches to a TUN device in the current network namespace. A new device is down and has no
// address. The error wraps unix.EBUSY if another process has the device, and unix.EINVAL if a device of that
// name is no TUN. It wraps unix.EPERM without CAP_NET_ADMIN, and unix.ENOENT without /dev/net/tun.
func OpenTUN(o TUNOptions) (*PortableTUN, error) {
	var t *TUN
	var err error
	if o.From != nil {
		t, err = keptTUN(o, KindTUN)
	} else if t, err = openTUN(o, unix.IFF_VNET_HDR); errors.Is(err, unix.EINVAL) {
		// some sandboxes support no virtio-net header
		t, err = openTUN(o, 0)
	}
	if err != nil {
		return nil, err
	}
	return portableTUN(t)
}

func openTUN(o TUNOptions, flags uint16) (*TUN, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w%s", err, tunRemedy(err))
	}
	multi, err := setUpTUN(fd, o, flags)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("tun %s: %w", o.Name, err)
	}
	t, err := TUNFromFD(fd)
	if err != nil {
		return nil, err
	}
	t.requested = max(1, o.Queues)
	if multi {
		err = t.addQueues(max(1, o.Queues), flags)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil, errors.Join(err, t.Close())
	}
	if len(t.fds) < o.Queues && o.Logger != nil {
		o.Logger.Warn("the TUN has fewer queues than there are workers, so fewer workers read it; "+
			"a TUN made with a single queue gets more only if it is deleted",
			"device", t.name, "queues", len(t.fds), "wanted", o.Queues, "cause", err)
	}
	return t, nil
}

func setUpTUN(fd int, o TUNOptions, flags uint16) (multi bool, err error) {
	if multi, err = attachTUN(fd, o, flags); err != nil {
		return multi, err
	}
	persist := 1
	if o.Transient {
		persist = 0
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, persist); err != nil {
		return multi, fmt.Errorf("TUNSETPERSIST %d: %w", persist, err)
	}
	return multi, nil
}

// TUNFromFD makes a port from a TUN descriptor that was opened elsewhere, with IFF_NO_PI and without
// IFF_VNET_HDR. It owns fd, also on error.
func TUNFromFD(fd int) (*TUN, error) {
	req, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.TUNGETIFF, req)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("wrap tun descriptor %d: %w", fd, err)
	}
	return &TUN{name: req.Name(), fd: fd, fds: []int{fd}}, nil
}

// Name returns the device's name.
func (t *TUN) Name() string { return t.name }

// Queues implements Port.
func (t *TUN) Queues() []Queue { return t.queuesOf(t.readFrom) }

// Close closes the descriptors. A persistent device stays.
func (t *TUN) Close() error {
	var errs []error
	t.shut.Do(func() {
		for _, fd := range t.fds {
			errs = append(errs, unix.Close(fd))
		}
	})
	return errors.Join(errs...)
}

func (t *TUN) readFrom(fd int, r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		n, errno := read(fd, p.Space())
		switch {
		case errno == 0:
			r.Commit(n)
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR:
		default: // EBADFD: the device was deleted; EIO: it is down, and may come up again
			if errno == unix.EIO {
				return nil
			}
			return fmt.Errorf("read %s: %w", t.name, errno)
		}
	}
}

// WriteBatch implements Port by one write(2) per packet, which runs the kernel's whole receive path.
func (t *TUN) WriteBatch(r *Ring, ps []*Packet) {
	r.Writes += len(ps)
	for _, p := range ps {
		p.verdictOf(write(t.queueFor(r, p), p.Bytes()))
	}
}

// queueFor returns the queue to write p to. The kernel delivers the other direction of the flow on the same
// queue. It is the worker's own, unless one worker reads all flows of the sender: then the flow's hash
// selects it.
func (t *TUN) queueFor(r *Ring, p *Packet) int {
	n := len(t.fds)
	if n == 1 {
		return t.fd
	}
	if p.SingleReader {
		if in, err := p.Parse(); err == nil {
			return t.fds[int(encap.FlowPairHash(p.Bytes(), *in)%uint32(n))]
		}
	}
	return t.fds[r.Worker%n]
}

// tunRemedy returns what to do if /dev/net/tun cannot be opened.
func tunRemedy(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return ": modprobe tun; in a container pass the device in"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return ": run weftd as root, and let the unit or the container use device 10:200"
	}
	return ""
}

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
	// Name is the device's name, or a template such as "flannel%d". A device that
	// exists already is attached to: its addresses and routes are kept.
	Name string
	// Transient removes the device when it is closed. Otherwise the device is persistent: without a process
	// it keeps its addresses and routes, and the kernel drops packets there that would otherwise leak to the
	// default route.
	Transient bool
	// Queues is how many workers shall read the device side by side; 0 is 1. A device that
	// exists with a single queue keeps it (until it is deleted), and one with several is
	// taken with as many as are asked for.
	Queues int
	// Off switches offloads off, and Logger is told when one is lost; only
	// OpenOffloadTUN uses Off. A nil Logger discards.
	Off    OffloadSet
	Logger *slog.Logger
	// From, if not nil, is the device as an earlier port kept it. The new port takes over its queues and the
	// packets in them. With an error the descriptors are closed; the error wraps ErrUnfit if the device is
	// not the one that is wanted.
	From *Kept
}

// TUN is a TUN device. As a port it moves one bare IP packet a read and a write, without a virtio-net header.
// It is safe for concurrent use.
type TUN struct {
	name string
	fd   int
	fds  []int // of the queues; the first is fd
	// wanted is how many queues were asked for.
	wanted int
	shut   sync.Once
}

// OpenTUN opens or re-attaches to a TUN device in the current network namespace.
// The error wraps unix.EBUSY if another process has the device, unix.EINVAL if a
// device of that name is no TUN, unix.EPERM without CAP_NET_ADMIN, and
// unix.ENOENT where there is no /dev/net/tun. The device comes without address
// and down if it is new.
func OpenTUN(o TUNOptions) (*PortableTUN, error) {
	var t *TUN
	var err error
	if o.From != nil {
		t, err = keptTUN(o, KindTUN)
	} else if t, err = openTUN(o, unix.IFF_VNET_HDR); errors.Is(err, unix.EINVAL) {
		// a sandbox that knows no virtio-net header
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
	t.wanted = max(1, o.Queues)
	if multi {
		err = t.addQueues(max(1, o.Queues), flags)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil, errors.Join(err, t.Close())
	}
	if len(t.fds) < o.Queues && o.Logger != nil {
		o.Logger.Warn("the TUN has fewer queues than there are workers, so that fewer of them read it; "+
			"one that was made with a single queue has others only when it is deleted and made anew",
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

// TUNFromFD makes a port of a TUN descriptor that was opened elsewhere, by a
// parent or in a pod's namespace, with IFF_NO_PI and without IFF_VNET_HDR. It
// takes fd over, also on error.
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

// Name is the device's name.
func (t *TUN) Name() string { return t.name }

// Queues implements Port.
func (t *TUN) Queues() []Queue { return t.queuesOf(t.readFrom) }

// Close detaches from the device. A persistent one stays.
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
		default: // EBADFD: the device was deleted; EIO: it is down, which passes
			if errno == unix.EIO {
				return nil
			}
			return fmt.Errorf("read %s: %w", t.name, errno)
		}
	}
}

// WriteBatch implements Port: one packet a write(2). The kernel's whole receive
// path runs inside it.
func (t *TUN) WriteBatch(r *Ring, ps []*Packet) {
	r.Writes += len(ps)
	for _, p := range ps {
		p.verdictOf(write(t.queueFor(r, p), p.Bytes()))
	}
}

// queueFor is the queue to write p on, and so the one that the other direction of its flow
// is read from: the worker's own, or if sender and kernel have given the worker
// more than its share of flows, one by the flow.
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

// tunRemedy says what to do where /dev/net/tun cannot be opened.
func tunRemedy(err error) string {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return ": modprobe tun; in a container pass the device in"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return ": run weftd as root, and let the unit or the container use device 10:200"
	}
	return ""
}

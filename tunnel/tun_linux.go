package tunnel

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// TUNOptions says which TUN device to open.
type TUNOptions struct {
	// Name is the device's name, or a template such as "flannel%d". A device that
	// exists already is attached to: its addresses and routes are kept.
	Name string
	// Transient lets the device vanish when it is closed. Otherwise it is persistent:
	// while no process has it open it keeps its addresses and routes, and the kernel
	// drops there what would else leak to the default route.
	Transient bool
	// Off switches offloads off, and Logger is told when one is lost; only
	// OpenOffloadTUN looks at them. A nil Logger discards.
	Off    OffloadSet
	Logger *slog.Logger
}

// TUN is a TUN device as a port: one bare IP packet a read and a write, no
// virtio-net header (path portable). It is safe for concurrent use.
type TUN struct {
	dev  tun.Device
	name string
	fd   int // dev's own, valid until Close
}

// OpenTUN opens or re-attaches to a TUN device in the current network namespace.
// The error wraps unix.EBUSY if another process has the device, unix.EINVAL if a
// device of that name is no TUN, unix.EPERM without CAP_NET_ADMIN, and
// unix.ENOENT where there is no /dev/net/tun. The device comes without address
// and down if it is new.
func OpenTUN(o TUNOptions) (*TUN, error) {
	return openTUN(o, 0)
}

func openTUN(o TUNOptions, flags uint16) (*TUN, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := setUpTUN(fd, o, flags); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("tun %s: %w", o.Name, err)
	}
	return TUNFromFD(fd)
}

func setUpTUN(fd int, o TUNOptions, flags uint16) error {
	req, err := unix.NewIfreq(o.Name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	// The offloads are the device's, not the descriptor's: a persistent device still
	// has those of the process before us, and would hand us superpackets and partial
	// checksums without a header that says so.
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD 0: %w", err)
	}
	persist := 1
	if o.Transient {
		persist = 0
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, persist); err != nil {
		return fmt.Errorf("TUNSETPERSIST %d: %w", persist, err)
	}
	return nil
}

// TUNFromFD makes a port of a TUN descriptor that was opened elsewhere, by a
// parent or in a pod's namespace, with IFF_NO_PI and without IFF_VNET_HDR. It
// takes fd over, also on error.
func TUNFromFD(fd int) (*TUN, error) {
	// Of the package's constructors this is the one that starts no goroutine and does
	// not look for the device in the caller's network namespace.
	dev, name, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("wrap tun descriptor %d: %w", fd, err)
	}
	t := &TUN{dev: dev, name: name}
	conn, err := dev.File().SyscallConn()
	if err == nil {
		err = conn.Control(func(raw uintptr) { t.fd = int(raw) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tun %s: %w", name, err), dev.Close())
	}
	return t, nil
}

// Name is the device's name.
func (t *TUN) Name() string { return t.name }

// PollFD implements Port.
func (t *TUN) PollFD() int { return t.fd }

// Close detaches from the device. A persistent one stays.
func (t *TUN) Close() error { return t.dev.Close() }

// ReadBatch implements Port: one packet a read(2), until none is left.
func (t *TUN) ReadBatch(r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		n, errno := read(t.fd, p.Space())
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
func (t *TUN) WriteBatch(_ *Ring, ps []*Packet) {
	for _, p := range ps {
		p.verdictOf(write(t.fd, p.Bytes()))
	}
}

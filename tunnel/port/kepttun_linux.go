package port

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// aboutTUN is Kept.About of kinds KindTUN and KindOffload.
type aboutTUN struct {
	Name string `json:"name"`
	// Queues is the number of queues requested. There may be fewer.
	Queues int `json:"queues"`
}

// Keep implements KeepablePort.
func (t *OffloadTUN) Keep() (Kept, error) { return t.keep(KindOffload) }

func (t *TUN) keep(kind string) (Kept, error) {
	return keep(kind, aboutTUN{t.name, t.requested}, t.fds)
}

// Keep implements KeepablePort.
func (t *PortableTUN) Keep() (Kept, error) { return t.keep(KindTUN) }

// keptTUN makes the TUN for OpenTUN or OpenOffloadTUN, depending on kind, from o.From.
func keptTUN(o TUNOptions, kind string) (*TUN, error) {
	return adopt(o.From, func() (*TUN, error) {
		about, err := checkTUN(o, kind)
		if err != nil {
			return nil, err
		}
		fds := o.From.FDs
		if !o.Transient {
			err = unix.IoctlSetInt(fds[0], unix.TUNSETPERSIST, 1)
		}
		if err == nil {
			err = unix.IoctlSetInt(fds[0], unix.TUNSETOFFLOAD, 0) // the port sets the offloads later
		}
		return &TUN{name: about.Name, fd: fds[0], fds: fds, requested: about.Queues}, err
	})
}

// checkTUN checks that o.From is the device that o describes.
func checkTUN(o TUNOptions, kind string) (about aboutTUN, err error) {
	if err := o.From.decode(kind, &about); err != nil {
		return about, err
	}
	switch {
	case len(o.From.FDs) == 0:
		return about, unfit("there is no descriptor")
	case about.Name != o.Name && !strings.Contains(o.Name, "%d"):
		return about, unfit("the device is %s", about.Name)
	case about.Queues != max(1, o.Queues):
		return about, unfit("it has %d queues, not %d", about.Queues, max(1, o.Queues))
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_VNET_HDR)
	if req, err := unix.NewIfreq(""); err == nil && kind == KindTUN &&
		unix.IoctlIfreq(o.From.FDs[0], unix.TUNGETIFF, req) == nil {
		flags = req.Uint16() // an earlier weftd and some sandboxes have no virtio-net header
	}
	for _, fd := range o.From.FDs {
		if err := checkQueue(fd, about.Name, flags|unix.IFF_TUN); err != nil {
			return about, err
		}
	}
	if n := tunQueueCount(about.Name); n > 0 && n != len(o.From.FDs) {
		return about, unfit("%d of the device's %d queues were kept", len(o.From.FDs), n)
	}
	return about, nil
}

// checkQueue checks that fd is a queue of the TUN or TAP with that name and those flags, in the current
// network namespace.
func checkQueue(fd int, name string, flags uint16) error {
	req, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); errors.Is(err, unix.EBADFD) {
		return unfit("the device is gone")
	} else if err != nil {
		return unfit("a descriptor is no TUN's (TUNGETIFF: %v)", err)
	}
	const mine = unix.IFF_TUN | unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	if got := req.Uint16() & mine; got != flags&mine|unix.IFF_NO_PI {
		return unfit("the device has the flags %#x", got)
	}
	if req.Name() != name {
		return unfit("the device is called %s now", req.Name())
	}
	if !inThisNamespace(fd, unix.TUNGETDEVNETNS) {
		return unfit("the device is in another network namespace")
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return unfit("%v", err)
	}
	return nil
}

// inThisNamespace reports whether the network namespace that the ioctl(2) request returns is the thread's. It
// returns true if the kernel does not report it.
func inThisNamespace(fd int, request uint) bool {
	theirs, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), 0)
	if errno != 0 {
		return true
	}
	defer unix.Close(int(theirs))
	var a, b unix.Stat_t
	if unix.Fstat(int(theirs), &a) != nil || unix.Stat("/proc/thread-self/ns/net", &b) != nil {
		return true
	}
	return a.Dev == b.Dev && a.Ino == b.Ino
}

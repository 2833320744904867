package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// A multi-queue device has a descriptor for each queue. The kernel delivers a flow on the queue that its
// other direction was last written to (tun_automq_select_queue), else by a symmetric hash of the flow. The
// writer of a flow thus selects its reader.

// queuesOf returns the queues of t, which read reads. Several queues have different workers.
func (t *TUN) queuesOf(read func(fd int, r *Ring) error) (l []Queue) {
	for i, fd := range t.fds {
		l = append(l, FDQueue{fd, workerFor(i, len(t.fds)), func(r *Ring) error { return read(fd, r) }, nil})
	}
	return l
}

// attachTUN attaches fd to the device as a queue. An existing device keeps its kind, multi-queue or not,
// whatever o requests. multi reports its kind.
func attachTUN(fd int, o TUNOptions, flags uint16) (multi bool, err error) {
	for _, multi = range []bool{o.Queues > 1, o.Queues <= 1} {
		if multi {
			// Any number of processes may have queues of such a device.
			if n := tunQueueCount(o.Name); n > 0 {
				return multi, fmt.Errorf("%d queues in use: %w", n, unix.EBUSY)
			}
		}
		if err = setTUN(fd, o.Name, flags, multi); !errors.Is(err, unix.EINVAL) {
			return multi, err
		}
	}
	return multi, err
}

func setTUN(fd int, name string, flags uint16, multi bool) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	flags |= unix.IFF_TUN | unix.IFF_NO_PI
	if multi {
		flags |= unix.IFF_MULTI_QUEUE
	}
	req.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); errors.Is(err, unix.EPERM) {
		return fmt.Errorf("TUNSETIFF: %w: CAP_NET_ADMIN is missing, or the device is another user's: run weftd "+
			"as root, or give it the capability", err)
	} else if err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	return nil
}

// addQueues opens further queues of the device, up to n in all. The first queue already set the offloads of
// the device.
func (t *TUN) addQueues(n int, flags uint16) error {
	if got := tunQueueCount(t.name); got > 1 {
		return fmt.Errorf("tun %s: another process opened it meanwhile: %w", t.name, unix.EBUSY)
	}
	for len(t.fds) < n {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		if err := setTUN(fd, t.name, flags, true); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("tun %s: queue %d: %w", t.name, len(t.fds), err)
		}
		t.fds = append(t.fds, fd)
	}
	if got := tunQueueCount(t.name); got > n {
		return fmt.Errorf("tun %s: another process opened it meanwhile: %w", t.name, unix.EBUSY)
	}
	return nil
}

// Attributes of RTM_NEWLINK (linux/if_link.h). The number of queues is reported since Linux 4.17.
const (
	attrLinkInfo     = 18
	attrInfoData     = 2
	attrTUNNumQueues = 8
)

// tunQueueCount returns the number of open queues of a multi-queue device, in all processes. It returns 0 if
// the device is another or does not exist, or if the kernel does not report it.
func tunQueueCount(name string) int {
	dump, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return 0
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attrs := m.Data[unix.SizeofIfInfomsg:]
		if unix.ByteSliceToString(nlattr.Find(attrs, unix.IFLA_IFNAME)) != name {
			continue
		}
		data := nlattr.Find(nlattr.Find(attrs, attrLinkInfo), attrInfoData)
		if n := nlattr.Find(data, attrTUNNumQueues); len(n) >= 4 {
			return int(binary.NativeEndian.Uint32(n))
		}
		return 0
	}
	return 0
}

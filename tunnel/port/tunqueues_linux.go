package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// A device with several queues has a descriptor for each. The kernel gives a flow to the
// queue that its other direction was last written to (tun_automq_select_queue), else to
// one by a symmetric hash of the flow; so whoever writes a flow chooses who reads it.

// queuesOf are the queues, which read reads: each worker has its own, if there are several.
func (t *TUN) queuesOf(read func(fd int, r *Ring) error) (l []Queue) {
	for i, fd := range t.fds {
		l = append(l, FDQueue{fd, homeOf(i, len(t.fds)), func(r *Ring) error { return read(fd, r) }, nil})
	}
	return l
}

// attachTUN makes fd a queue of the device. One that exists with several queues is taken as
// such, and one with a single queue as that, whatever o asks for: multi says which.
func attachTUN(fd int, o TUNOptions, flags uint16) (multi bool, err error) {
	for _, multi = range []bool{o.Queues > 1, o.Queues <= 1} {
		if multi {
			// The kernel lets any number of processes have queues of such a device.
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

// addQueues opens the device's further queues, up to n in all; fewer will do. The offloads are
// the device's, and were set through the first.
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

// Attributes of RTM_NEWLINK (linux/if_link.h). The count is since Linux 4.17.
const (
	attrLinkInfo     = 18
	attrInfoData     = 2
	attrTUNNumQueues = 8
)

// tunQueueCount is how many queues of a device with several are open, by any process; 0 if it
// is none or does not say.
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
		if n := nlattr.Find(nlattr.Find(nlattr.Find(attrs, attrLinkInfo), attrInfoData), attrTUNNumQueues); len(n) >= 4 {
			return int(binary.NativeEndian.Uint32(n))
		}
		return 0
	}
	return 0
}

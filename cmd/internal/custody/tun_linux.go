package custody

import (
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gone reports whether fd is a TUN whose device was deleted, or whose namespace has ended. It never gets a
// device again.
func gone(fd int) bool { return errors.Is(interfaceOf(fd), unix.EBADFD) }

// anyGone reports whether one of fds is gone.
func anyGone(fds []int) bool { return slices.ContainsFunc(fds, gone) }

// interfaceOf asks for the device of a TUN. The error is EBADFD for one that has none.
func interfaceOf(fd int) error {
	var request [unix.IFNAMSIZ + 24]byte // struct ifreq, whose size no architecture exceeds
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETIFF,
		uintptr(unsafe.Pointer(&request[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// drainMost bounds how many packets are taken out of one queue. A device holds fewer unless its txqueuelen
// was raised a lot.
const drainMost = 1 << 16

// drain discards the packets that wait at a TUN, and returns how many they were. It takes nothing of anything
// else.
func drain(fd int) (packets int) {
	if interfaceOf(fd) != nil {
		return 0
	}
	b := make([]byte, 66<<10) // the longest packet, with its virtio-net header
	for packets < drainMost {
		// The descriptor may block, so it is asked first. Nobody else reads it.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return packets
		}
		if _, err = unix.Read(fd, b); err != nil && !errors.Is(err, unix.EINTR) {
			return packets
		}
		packets++
	}
	return packets
}

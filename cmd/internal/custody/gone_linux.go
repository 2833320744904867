package custody

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Gone reports whether fd is a TUN whose device is no more: it was deleted, or its namespace has ended. Such a descriptor
// never has a device again. Any other descriptor is none of which that can be said.
func Gone(fd int) bool { return errors.Is(interfaceOf(fd), unix.EBADFD) }

func isTUN(fd int) bool { return interfaceOf(fd) == nil }

// interfaceOf asks for the device of a TUN. The error is EBADFD for one that has none.
func interfaceOf(fd int) error {
	var request [unix.IFNAMSIZ + 24]byte // struct ifreq, whose size no architecture exceeds
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETIFF, uintptr(unsafe.Pointer(&request[0]))); errno != 0 {
		return errno
	}
	return nil
}

// gone reports whether one of i's descriptors is.
func (i Item) gone() bool {
	for _, fd := range i.FDs {
		if Gone(fd) {
			return true
		}
	}
	return false
}

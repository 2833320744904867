package custody

import (
	"errors"

	"golang.org/x/sys/unix"
)

// drainMost bounds how many packets are taken out of one queue: more than any device holds unless its txqueuelen was raised a lot.
const drainMost = 1 << 16

// drain discards the packets that wait at a TUN, and returns how many they were. Of anything else it takes nothing.
func drain(fd int) (packets int) {
	if !isTUN(fd) {
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

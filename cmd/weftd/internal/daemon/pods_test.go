package daemon

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
)

// While another program takes this one's place an attach is refused, and none of the pod's descriptors stays.
func TestRefusedAttachClosesDescriptors(t *testing.T) {
	d := &Daemon{log: discard()}
	d.upgrades.changing.Lock()
	defer d.upgrades.changing.Unlock()
	var fds []int
	for range 3 {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	if _, err := d.Attach(podport.Request{}, fds); !errors.Is(err, control.ErrReplaced) {
		t.Errorf("got %v", err)
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor %d is open: %v", fd, err)
		}
	}
}

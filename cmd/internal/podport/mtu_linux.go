package podport

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysfsMagic is the file system of what the kernel says of devices (linux/magic.h).
const sysfsMagic = 0x62656572

// InspectMTU returns the MTU that fd says, in bytes: fd has to be the file in sysfs that has the MTU of an interface of that name, open for
// reading and writing. It is borrowed.
func InspectMTU(fd int, name string) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("descriptor: %w", err)
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || int64(fs.Type) != sysfsMagic || path.Base(at) != "mtu" || path.Base(path.Dir(at)) != name {
		return 0, errors.New("the second descriptor is not the file of the interface's MTU in sysfs")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return 0, errors.New("the file of the interface's MTU is not open for reading and writing")
	}
	buf := make([]byte, 16)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("read the interface's MTU: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(buf[:n])))
}

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

// Settings are the names of an interface's files in sysfs whose descriptors follow the TUN's, in their order.
func Settings() []string { return []string{"mtu", "tx_queue_len"} }

// InspectSetting returns the number that fd says: fd has to be the file in sysfs of that setting of the
// interface, open for reading and writing. It is borrowed.
func InspectSetting(fd int, name, setting string) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("descriptor: %w", err)
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || int64(fs.Type) != sysfsMagic || path.Base(at) != setting ||
		path.Base(path.Dir(at)) != name {
		return 0, fmt.Errorf("a descriptor is not the file %s of %s in sysfs", setting, name)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return 0, errors.New("the file " + setting + " of the interface is not open for reading and writing")
	}
	return ReadSetting(fd)
}

// ReadSetting returns the number that a setting's file says.
func ReadSetting(fd int) (int, error) {
	buf := make([]byte, 16)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("read a setting of the interface: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(buf[:n])))
}

// WriteSetting changes a setting.
func WriteSetting(fd, value int) error {
	_, err := unix.Pwrite(fd, strconv.AppendInt(nil, int64(value), 10), 0)
	return err
}

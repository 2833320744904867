package podtun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// OpenMTU opens the file in sysfs that has the MTU of the interface, for reading and writing. Who has it and CAP_NET_ADMIN over the pod's
// network namespace changes the MTU without entering that, and does not keep it alive, as a socket in it would. It takes the rights to
// mount (CAP_SYS_ADMIN), and Linux 5.2.
func OpenMTU(netns, name string) (*os.File, error) {
	ns, err := os.Open(netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	var f *os.File
	err = ownthread.In(int(ns.Fd()), func() (err error) { // a sysfs is that of the network namespace that it was mounted in
		f, err = openMTU(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("MTU of %s in %s: %w", name, netns, err)
	}
	return f, nil
}

func openMTU(name string) (*os.File, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(fs) }() // what it was for has been mounted
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	path := filepath.Join("class", "net", name, "mtu")
	fd, err := unix.Openat(mount, path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err := errors.Join(err, unix.Close(mount)); err != nil { // the file keeps what it needs
		return nil, fmt.Errorf("sysfs: %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

package podtun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// OpenSettings opens the files in sysfs of those settings of the interface, for reading and writing. With
// them and CAP_NET_ADMIN over the pod's network namespace a process changes the settings without entering it,
// and does not keep it alive, as a socket would. It takes the rights to mount (CAP_SYS_ADMIN), and Linux 5.2.
func OpenSettings(netns, name string, settings []string) (files []*os.File, err error) {
	ns, err := os.Open(netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	err = ownthread.In(int(ns.Fd()), func() error {
		// a sysfs is that of the network namespace that it was mounted in
		files, err = openSettings(name, settings)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("settings of %s in %s: %w", name, netns, err)
	}
	return files, nil
}

func openSettings(name string, settings []string) (files []*os.File, err error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer func() { _ = unix.Close(fs) }() // what it was for has been mounted
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer func() { _ = unix.Close(mount) }() // the files keep what they need
	for _, setting := range settings {
		path := filepath.Join("class", "net", name, setting)
		fd, err := unix.Openat(mount, path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, fmt.Errorf("sysfs: %s: %w", path, err)
		}
		files = append(files, os.NewFile(uintptr(fd), path))
	}
	return files, nil
}

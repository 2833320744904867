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

// tunGetDevNetns is TUNGETDEVNETNS (linux/if_tun.h), since Linux 5.0.
const tunGetDevNetns = 0x54e3

// The number of /dev/net/tun (Documentation/admin-guide/devices.txt).
const tunMajor, tunMinor = 10, 200

// InspectTUN returns the name that the device behind fd has now. An error says why fd cannot be a pod's port:
// it is no TUN, its packets do not begin with a virtio-net header, it has several queues, or its device is in
// this process' own network namespace, where no pod is. fd is borrowed.
func InspectTUN(fd int) (name string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("descriptor: %w", err)
	}
	// Other devices give other meanings to the numbers of the requests below.
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != tunMajor ||
		unix.Minor(st.Rdev) != tunMinor {
		return "", errors.New("the descriptor is none of /dev/net/tun")
	}
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); errors.Is(err, unix.EBADFD) {
		return "", errors.New("the descriptor has no device, or that is gone with its namespace")
	} else if err != nil {
		return "", fmt.Errorf("TUNGETIFF: %w", err)
	}
	switch flags := int(req.Uint16()); {
	case flags&unix.IFF_TAP != 0 || flags&unix.IFF_TUN == 0:
		return "", fmt.Errorf("%s is a TAP: a pod's interface is a TUN, which has no Ethernet header", req.Name())
	case flags&unix.IFF_NO_PI == 0 || flags&unix.IFF_VNET_HDR == 0:
		return "", fmt.Errorf("%s has to be made with IFF_NO_PI and IFF_VNET_HDR", req.Name())
	case flags&unix.IFF_MULTI_QUEUE != 0:
		return "", fmt.Errorf("%s has several queues: another process could read some of its packets", req.Name())
	}
	ours, err := inOwnNamespace(fd)
	if err == nil && ours {
		return "", fmt.Errorf("%s is in weftd's own network namespace: move it into the pod's first", req.Name())
	}
	return req.Name(), nil // on older kernels, and in foreign user namespaces, where it is is not known
}

// inOwnNamespace reports whether the TUN's device is in this thread's network namespace.
func inOwnNamespace(fd int) (bool, error) {
	ns, err := unix.IoctlRetInt(fd, tunGetDevNetns)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(ns) }()
	var there, here unix.Stat_t
	if err := unix.Fstat(ns, &there); err != nil {
		return false, err
	}
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return false, os.NewSyscallError("stat", err)
	}
	return there.Ino == here.Ino && there.Dev == here.Dev, nil
}

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

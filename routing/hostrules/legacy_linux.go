package hostrules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These numbers are from linux/netfilter_ipv4/ip_tables.h; IPv6 has the same.
const (
	optInfo    = 64 // IPT_SO_GET_INFO
	optEntries = 65 // IPT_SO_GET_ENTRIES
)

// getInfo is struct ipt_getinfo.
type getInfo struct {
	name             [32]byte
	validHooks       uint32
	entry, underflow [5]uint32
	entries, size    uint32
}

// getEntries is struct ipt_get_entries; entries begin where their counters are aligned.
type getEntries struct {
	_       [32]byte // name
	_       uint32   // size
	entries [1]uint64
}

// maxTable bounds what is read: a host with 100,000 rules has less.
const maxTable = 256 << 20

// legacyTables lists the tables that legacy iptables has in this namespace. Asking for one of
// them by name would make it.
func legacyTables(ipv6 bool) ([]string, error) {
	name := "/proc/thread-self/net/ip_tables_names"
	if ipv6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	b, err := os.ReadFile(name)
	// There is none in a kernel without it, or whose module is not loaded. In a network namespace of an ordinary user's some kernels let only the machine's
	// root read it, though the user may have such tables: they are not seen, and the rules go to where iptables has them by itself.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the tables of legacy iptables: %w", err)
	}
	return strings.Fields(string(b)), nil
}

// readLegacy reads one table that exists, without the lock that iptables takes and without
// changing anything.
func readLegacy(name string, ipv6 bool) (blobTable, error) {
	family, level := unix.AF_INET, unix.IPPROTO_IP
	if ipv6 {
		family, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return blobTable{}, fmt.Errorf("socket to read iptables: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	const tries = 4
	for i := 1; ; i++ {
		t, err := readLegacyOnce(fd, level, name, ipv6)
		// EAGAIN: the table's size changed between the two questions.
		if err == nil || i == tries || !errors.Is(err, unix.EAGAIN) {
			return t, err
		}
	}
}

func readLegacyOnce(fd, level int, name string, ipv6 bool) (blobTable, error) {
	var info getInfo
	copy(info.name[:len(info.name)-1], name)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))
	if _, err := getsockopt(fd, level, optInfo, b); err != nil {
		return blobTable{}, fmt.Errorf("iptables table %s: %w", name, err)
	}
	if info.size > maxTable {
		return blobTable{}, fmt.Errorf("iptables table %s has %d bytes, more than the %d that are read", name, info.size, maxTable)
	}
	head := int(unsafe.Offsetof(getEntries{}.entries))
	b = make([]byte, head+int(info.size))
	copy(b, info.name[:])
	binary.NativeEndian.PutUint32(b[len(info.name):], info.size)
	n, err := getsockopt(fd, level, optEntries, b)
	if err != nil {
		return blobTable{}, fmt.Errorf("entries of iptables table %s: %w", name, err)
	}
	t, err := parseBlob(name, b[head:max(n, head)], blobInfo{info.validHooks, info.entry, info.underflow}, ipv6)
	if err != nil {
		return blobTable{}, fmt.Errorf("iptables table %s: %w", name, err)
	}
	return t, nil
}

// getsockopt reads an option into b and returns its length, at most len(b).
func getsockopt(fd, level, opt int, b []byte) (int, error) {
	size := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errno
	}
	return min(int(size), len(b)), nil
}

package systemdtest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dupfdQuery is F_DUPFD_QUERY of include/uapi/linux/fcntl.h, since Linux 6.10.
const dupfdQuery = 1024 + 3

// kcmpFile is KCMP_FILE of include/uapi/linux/kcmp.h.
const kcmpFile = 0

// same reports whether a and b are duplicates of one another (one open file description). An error says that
// the kernel does not tell: kcmp(2) is a choice when it is built, and may be filtered.
func same(a, b int) (bool, error) {
	if n, err := unix.FcntlInt(uintptr(a), dupfdQuery, b); err == nil {
		return n == 1, nil
	}
	pid := uintptr(os.Getpid())
	n, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
	if errno != 0 {
		return false, fmt.Errorf("compare descriptors: %w", errno)
	}
	return n == 0, nil
}

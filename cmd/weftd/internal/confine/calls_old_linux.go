//go:build !arm64 && !riscv64 && !loong64

package confine

import "golang.org/x/sys/unix"

// byName are the calls that change a file by its name as they were before those with a directory's descriptor.
func byName() []uint32 {
	return []uint32{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
		unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_MKNOD, unix.SYS_MKDIR,
	}
}

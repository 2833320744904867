package daemon

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropImage releases the resident pages of this program's code and constants. The start has touched nearly all
// of them, most only for packages that initialise themselves. A page that is used again comes back from the page
// cache, at the cost of a page fault. Pages that the program may write to are left alone.
func dropImage() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = maps.Close() }() // only read
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		from, to, ok := imagePages(lines.Text(), exe)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x: %w", from, to, errno)
		}
	}
	return lines.Err()
}

// imagePages returns the addresses in a line of /proc/self/maps (proc_pid_maps(5)); ok is false unless the line maps
// exe, and not for writing.
func imagePages(line, exe string) (from, to uintptr, ok bool) {
	f := strings.Fields(line) // address perms offset dev inode pathname
	if len(f) != 6 || f[5] != exe || f[1] != "r-xp" && f[1] != "r--p" {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(f[0], "%x-%x", &from, &to)
	return from, to, err == nil && n == 2 && from < to
}

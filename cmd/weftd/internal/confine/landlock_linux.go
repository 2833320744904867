package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writing is what landlock(7) knows of changing files, in its first version. Everything else stays as it is.
const writing = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM

// onFile is the part of it that a rule for a single file may name.
const onFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE

// writingWithin returns what is forbidden elsewhere, by the kernel's version of landlock. Before the second, files could not be moved
// between directories, which nobody could allow; before the third, to cut one off was not known.
func writingWithin(abi int) uint64 {
	w := uint64(writing)
	if abi >= 2 {
		w |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		w |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return w
}

// ErrNoLandlock says that this kernel has none, or that it is not turned on (lsm= of the kernel's command line).
var ErrNoLandlock = errors.New("this kernel does not confine writing (landlock: CONFIG_SECURITY_LANDLOCK, lsm=landlock, Linux 5.13)")

// Writes lets this process, and the programs that it starts, change nothing but what is in or below the files and directories
// named. One that does not exist is left out, and returned: it has to be made before. It needs CAP_SYS_ADMIN, or no_new_privs.
func Writes(paths []string) (absent []string, err error) {
	return confineFiles(paths, writingWithin)
}

// reading is what landlock(7) knows of files that are opened for anything else.
const reading = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

// confineFiles forbids what within says for the kernel's version of landlock, but in and below paths.
func confineFiles(paths []string, within func(abi int) uint64) (absent []string, err error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoLandlock, errno)
	}
	forbidden := within(int(abi))
	attr := unix.LandlockRulesetAttr{Handled_access_fs: forbidden}
	// Later versions know a longer structure; its first field is all that we say.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock: make a set of rules: %w", errno)
	}
	rules := os.NewFile(fd, "landlock")
	defer rules.Close()
	for _, p := range paths {
		switch err := allow(int(rules.Fd()), p, forbidden); {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, p)
		case err != nil:
			return absent, fmt.Errorf("landlock: allow writing to %s: %w", p, err)
		}
	}
	if err := noNewPrivileges(); err != nil {
		return absent, err
	}
	if err := everyThread(unix.SYS_LANDLOCK_RESTRICT_SELF, rules.Fd(), 0); err != nil {
		return absent, fmt.Errorf("landlock: %w", err)
	}
	return absent, nil
}

// allow adds a rule that gives all of access to what is at or below path.
func allow(rules int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= onFile | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	rule := &unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(rule)), 0, 0, 0)
	runtime.KeepAlive(rule)
	if errno != 0 {
		return errno
	}
	return nil
}

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	kernel "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// onFile is the part of writing that a rule for a single file may name.
const onFile = kernel.AccessFSWriteFile | kernel.AccessFSTruncate

// writingWithin is what landlock(7) knows of changing files, by the kernel's version of it; the rest stays
// allowed. Before the second version nobody could allow to move files between directories, and the third
// knows to truncate.
func writingWithin(abi int) uint64 {
	const first = kernel.AccessFSWriteFile | kernel.AccessFSRemoveDir | kernel.AccessFSRemoveFile |
		kernel.AccessFSMakeChar | kernel.AccessFSMakeDir | kernel.AccessFSMakeReg | kernel.AccessFSMakeSock |
		kernel.AccessFSMakeFifo | kernel.AccessFSMakeBlock | kernel.AccessFSMakeSym
	switch {
	case abi < 2:
		return first
	case abi < 3:
		return first | kernel.AccessFSRefer
	}
	return first | kernel.AccessFSRefer | kernel.AccessFSTruncate
}

// ErrNoLandlock says that this kernel has none, or that it is not turned on (lsm= of the kernel's command
// line).
var ErrNoLandlock = errors.New("this kernel does not confine writing " +
	"(landlock: CONFIG_SECURITY_LANDLOCK, lsm=landlock, Linux 5.13)")

// Writes lets this process, and the programs that it starts, change nothing but what is in or below the files
// and directories named. It leaves out, and returns, those that do not exist: they have to be made before.
func Writes(paths []string) (absent []string, err error) {
	abi, err := kernel.LandlockGetABIVersion()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLandlock, err)
	}
	forbidden := writingWithin(abi)
	var rules []landlock.Rule
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, p)
		case err != nil:
			return absent, fmt.Errorf("landlock: allow writing to %s: %w", p, err)
		case info.IsDir():
			rules = append(rules, landlock.PathAccess(landlock.AccessFSSet(forbidden), p))
		default:
			rules = append(rules, landlock.PathAccess(landlock.AccessFSSet(forbidden&onFile), p))
		}
	}
	c, err := landlock.NewConfig(landlock.AccessFSSet(forbidden))
	if err != nil {
		return absent, err
	}
	return absent, c.RestrictPaths(rules...)
}

package confine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pass has the next program that the calling thread executes keep the thread's capabilities. Without it one
// whose user is not root loses them: after no_new_privs a file gives none. undo takes it back.
func Pass() (undo func(), err error) {
	undo = func() {}
	if os.Geteuid() == 0 {
		return undo, nil // root keeps what it has
	}
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, d [2]unix.CapUserData
	if err := unix.Capget(&h, &had[0]); err != nil {
		return undo, fmt.Errorf("read our capabilities: %w", err)
	}
	for i := range d {
		d[i] = had[i]
		d[i].Inheritable |= had[i].Permitted
	}
	if err := unix.Capset(&h, &d[0]); err != nil {
		return undo, fmt.Errorf("pass capabilities on: %w", err)
	}
	var raised []uintptr
	undo = func() {
		for _, c := range raised {
			_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_LOWER, c, 0, 0) // it was raised here
		}
		_ = unix.Capset(&h, &had[0]) // less is always given
	}
	for c := range uintptr(64) {
		if d[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		if is, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0); err == nil &&
			is == 1 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			undo()
			return func() {}, errors.Join(fmt.Errorf("pass capability %d on: %w", c, err))
		}
		raised = append(raised, c)
	}
	return undo, nil
}

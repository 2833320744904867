package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ID is a network namespace as long as it exists. The kernel gives the numbers of one that is gone to
// another.
type ID struct{ dev, ino uint64 }

// ID returns the namespace's.
func (n *Namespace) ID() (ID, error) {
	var st unix.Stat_t
	err := unix.Fstat(n.FD(), &st)
	return ID{st.Dev, st.Ino}, err
}

// IDOf returns that of the namespace that a process is in, 0 for this process. It fails for a process that
// has ended.
func IDOf(pid int) (ID, error) {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	var st unix.Stat_t
	err := unix.Stat("/proc/"+who+"/ns/net", &st)
	return ID{st.Dev, st.Ino}, err
}

// Process is one that runs in a namespace.
type Process struct {
	PID  int
	Name string
}

func (p Process) String() string { return fmt.Sprintf("%s (pid %d)", p.Name, p.PID) }

// End kills all processes in the namespaces, also those that outlived whoever started them, and returns the
// ones that are still there after within. It leaves this process and the namespace of this process alone.
func End(within time.Duration, ids ...ID) (left []Process) {
	own, err := IDOf(0)
	if err != nil {
		return nil // no process can be told from those of the host
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id ID) bool { return id == own })
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		left = Processes(func(pid int) bool {
			id, err := IDOf(pid)
			return err == nil && slices.Contains(ids, id)
		})
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		for _, p := range left {
			fd, err := unix.PidfdOpen(p.PID, 0)
			if err != nil {
				continue
			}
			if id, err := IDOf(p.PID); err == nil && slices.Contains(ids, id) {
				// it is no other that got the number meanwhile
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // if it may not be killed, it is left
			}
			_ = unix.Close(fd)
		}
	}
}

// Processes lists those that are of interest, but for this one.
func Processes(of func(pid int) bool) (all []Process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !of(pid) {
			continue
		}
		name, _ := os.ReadFile(dir + "/comm") // without one it has ended, which the next look shows
		all = append(all, Process{pid, strings.TrimSpace(string(name))})
	}
	return all
}

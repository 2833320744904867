package reexec

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/cmd/weftd/internal/confine"
)

// variable names the memory file of the index in the environment of the program that is executed.
const variable = "WEFT_UPGRADE"

// Program is what is executed.
type Program struct {
	// Path is its file, Name its argument 0, and Args those behind it.
	Path, Name string
	Args       []string
	// Env are variables besides this process's.
	Env []string
	// Namespace is the descriptor of the TUN's network namespace if Env names it; 0 for none.
	Namespace int
}

// Exec executes p in this process, which has to be on the thread that main began on: namespaces are a
// thread's. It returns only with an error, and s stays the caller's.
func Exec(p Program, s State) error {
	x := index{Format: Format, State: s}
	own, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the program that runs: %w", err)
	}
	defer func() { _ = unix.Close(own) }() // nothing was written
	x.Before, x.Namespace = before{FD: own, Args: os.Args}, p.Namespace
	return x.execute(p.Path, append([]string{p.Name}, p.Args...), append(environment(os.Environ()), p.Env...))
}

// environment is what the next program gets. Its process number is this one's, so that WATCHDOG_PID stays
// right, and LISTEN_PID would be believed, though the descriptors from 3 on are other ones by now.
func environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == variable || name == "LISTEN_PID" || name == "LISTEN_FDS" || name == "LISTEN_FDNAMES"
	})
}

func (x *index) execute(path string, args, env []string) error {
	file, err := x.write()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was for the other program
	drop, err := confine.Pass()
	if err != nil {
		return err
	}
	defer drop()
	// A SIGHUP meanwhile must not end a program that does not listen yet.
	signal.Ignore(unix.SIGHUP)
	number := int(file.Fd())
	fds := append(x.all(), number)
	// A process that another thread starts now would get the descriptors, too.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	defer func() { _ = setFlags(fds, unix.FD_CLOEXEC) }() // they were open a moment ago
	if err := setFlags(fds, 0); err != nil {
		return err
	}
	err = syscall.Exec(path, args, append(env, variable+"="+strconv.Itoa(number)))
	return fmt.Errorf("execute %s: %w", path, err)
}

// setFlags sets the flags of all descriptors.
func setFlags(fds []int, flags int) (err error) {
	for _, fd := range fds {
		if _, bad := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); bad != nil {
			err = errors.Join(err, fmt.Errorf("descriptor %d: %w", fd, bad))
		}
	}
	return err
}

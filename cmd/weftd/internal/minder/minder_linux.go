package minder

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Verb is the first argument by which this program becomes a minder.
const Verb = "minder"

// Become executes this program again, as the minder of the child with that pid. pipe says which process takes that one's place. asked says that this
// process was asked to stop, which is the child's then. It returns only with an error.
func Become(pid int, pipe *os.File, asked func() bool) error {
	fd, err := unix.FcntlInt(pipe.Fd(), unix.F_DUPFD, 3) // not closed on exec
	if err != nil {
		return fmt.Errorf("wait for the successor: %w", err)
	}
	if asked() {
		_ = unix.Kill(pid, unix.SIGTERM) // it may have ended just now
	}
	// A signal from here on until Wait listens ends the minder: Go takes SIGTERM, SIGINT and SIGHUP out of the mask that a program is started
	// with (runtime.minitSignalMask), so that to block them here would not help.
	env := []string{"GOMAXPROCS=1", "GOGC=50"}
	err = syscall.Exec("/proc/self/exe", []string{os.Args[0], Verb, strconv.Itoa(pid), strconv.Itoa(fd)}, env)
	return fmt.Errorf("wait for the successor: %w", err)
}

// passed are the signals that the weftd that serves gets.
func passed() []os.Signal {
	return []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
}

// toldTime bounds how long a minder waits to hear who has succeeded a weftd that has ended well.
const toldTime = 2 * time.Second

// Wait is a minder, with the arguments behind Verb. It returns the exit status of the last weftd.
func Wait(args []string) (status int, err error) {
	if len(args) != 2 {
		return 1, errors.New("weftd waits for its successor by itself, when there is one: there is nothing to do by hand (docs/upgrade.md)")
	}
	pid, err := strconv.Atoi(args[0])
	fd, err2 := strconv.Atoi(args[1])
	if err := errors.Join(err, err2); err != nil || pid <= 1 || fd < 3 {
		return 1, errors.Join(errors.New("minder: two numbers are wanted"), err)
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "successors")
	next := make(chan int, 1)
	go func() { // ends when nobody can write any more, or with the process
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil && n > 1 {
				next <- n
			}
		}
		close(next)
	}()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passed()...)
	ended := make(chan exit)
	go reap(ended)          // ends with the process
	var stop syscall.Signal // by which a weftd was asked to stop that this process waited for
	succeeded := func(n int) {
		if pid = n; stop != 0 {
			_ = unix.Kill(pid, stop) // the one before had given its place away already, and whoever asked meant whoever serves
		}
	}
	for {
		// One that ended before this process knew of it, whoever started it has waited for.
		for status, told := 1, next; gone(pid); {
			select {
			case e := <-ended:
				if e.pid == pid {
					status = e.status
				}
			case n, more := <-told:
				if !more {
					told = nil // its status may be on its way
					continue
				}
				succeeded(n)
				status = 1
			case <-time.After(toldTime):
				return status, nil
			}
		}
		select {
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok {
				_ = unix.Kill(pid, n) // it may have ended just now
				if n == unix.SIGTERM || n == unix.SIGINT {
					stop = n
				}
			}
		case e := <-ended:
			if e.pid != pid {
				continue
			}
			if e.status != 0 {
				return e.status, nil
			}
			select {
			case n, more := <-next:
				if !more {
					return 0, nil
				}
				succeeded(n)
			case <-time.After(toldTime):
				return 0, nil // it was asked to stop
			}
		}
	}
}

// gone reports whether there is no such process, not even one that has ended and that nobody has waited for.
func gone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

type exit struct{ pid, status int }

// reap waits for every child.
func reap(ended chan<- exit) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // there is none just now
			time.Sleep(toldTime / 10)
			continue
		case s.Signaled():
			ended <- exit{pid, 128 + int(s.Signal())}
		default:
			ended <- exit{pid, s.ExitStatus()}
		}
	}
}

package holder

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Command is a program to run on a host of a lab.
type Command struct {
	Lab, Host string
	// Args begin with the program, which is looked up in this process's $PATH.
	Args []string
	// Stdin, Stdout and Stderr are passed to the program itself.
	Stdin, Stdout, Stderr *os.File
}

// Exec runs the command with this process's environment and working directory, passes
// the signals that this process gets on to it, and returns its exit status, or 128 plus the
// signal's number if a signal ended it. The error says why the command could not be run at all.
func Exec(cmd Command) (status int, err error) {
	dir, err := stateDir(cmd.Lab)
	if err != nil {
		return 0, err
	}
	c, err := dial(dir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return 0, fmt.Errorf("lab %s: %w (weft lab up, weft lab list)", cmd.Lab, ErrNoLab)
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	q := request{Op: opExec, Host: cmd.Host, Args: cmd.Args, Env: os.Environ()}
	if q.Path, err = exec.LookPath(cmd.Args[0]); err != nil {
		return 0, err
	}
	if q.Path, err = filepath.Abs(q.Path); err != nil {
		return 0, err
	}
	if q.Dir, err = os.Getwd(); err != nil {
		return 0, err
	}
	fds := []int{int(cmd.Stdin.Fd()), int(cmd.Stdout.Fd()), int(cmd.Stderr.Fd())}
	// Signals are caught before the request leaves, since the command may be asked to end as soon as it runs.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH)
	err = writePacket(c, q, fds...)
	stop := passSignals(c, signals)
	defer stop()
	if err != nil {
		return 0, err
	}
	var r reply
	if _, err := readPacket(c, &r); err != nil {
		return 0, fmt.Errorf("lab %s ended: %w", cmd.Lab, err)
	}
	switch {
	case r.Error != "":
		return 0, errors.New(r.Error)
	case r.Signal != 0:
		return 128 + r.Signal, nil
	default:
		return r.Status, nil
	}
}

// passSignals sends the signals that come by the channel to the holder until stop is called, which ends their coming too.
func passSignals(c *net.UnixConn, signals chan os.Signal) (stop func()) {
	done := make(chan struct{})
	go func() { // ends when signals is closed, which stop waits for
		defer close(done)
		for s := range signals {
			_ = writePacket(c, request{Op: opSignal, Signal: int(s.(unix.Signal))})
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wanted is how many descriptors have to be free at once. Two listeners have a spare one each, which is free
// for a moment after a client has had it.
const wanted = 3

// descriptorsEvery is the time between two looks at whether this process may have another descriptor.
const descriptorsEvery = 5 * time.Second

// watchDescriptors notes when this process gets no descriptor more, and when it does again, until ctx ends.
// Open descriptors stay open, so packets, watches and the lease go on; but whatever has to be opened anew
// then, such as a connection to the store, fails in its own way, and says so where nobody would look for the
// cause.
func (d *Daemon) watchDescriptors(ctx context.Context) error {
	for pause(ctx, descriptorsEvery) {
		d.degraded.note(d.log, "descriptors to spare", descriptorFault())
	}
	return nil
}

// descriptorFault says why this process gets no descriptor more, and what to do; nil if it gets some.
func descriptorFault() error {
	var err error
	for range wanted {
		fd, fault := openSpare()
		if err = fault; err != nil {
			break
		}
		defer func() { _ = unix.Close(fd) }() // it is not used
	}
	if err == nil {
		return nil
	}
	var limit unix.Rlimit
	switch {
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w on this host: another process may have most of them (see lsof), or fs.file-max is "+
			"too low. New connections to the store and clients fail", err)
	case !errors.Is(err, unix.EMFILE) || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil:
		return nil // another fault than the one that is looked for
	}
	return fmt.Errorf("%w: %d are allowed (RLIMIT_NOFILE). New connections to the store and of clients fail. "+
		"Raise LimitNOFILE= in weftd's unit, and now: prlimit --pid %d --nofile=65536", err, limit.Cur, os.Getpid())
}

// openSpare opens a descriptor that means nothing.
func openSpare() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) }

// sparing is a listener that keeps a descriptor for a client that comes when there is no other: an operator
// is to be told what is wrong. It serves one at a time then.
type sparing struct {
	net.Listener
	mu    sync.Mutex
	spare int // -1 while it has none
}

func spare(l net.Listener) *sparing { return &sparing{Listener: l, spare: -1} }

// Accept implements net.Listener.
func (l *sparing) Accept() (net.Conn, error) {
	l.keep()
	c, err := l.Listener.Accept()
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && l.release() {
		c, err = l.Listener.Accept()
	}
	return c, err
}

// keep sees to it that there is a spare descriptor, if one can be had.
func (l *sparing) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare >= 0 {
		return
	}
	if fd, err := openSpare(); err == nil {
		l.spare = fd
	}
}

// release gives the spare descriptor up, and says whether there was one.
func (l *sparing) release() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spare < 0 {
		return false
	}
	_ = unix.Close(l.spare) // it was never used
	l.spare = -1
	return true
}

// Close implements net.Listener.
func (l *sparing) Close() error {
	l.release()
	return l.Listener.Close()
}

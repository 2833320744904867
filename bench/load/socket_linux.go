package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/probe"
)

// patience bounds each blocking call, so that a path that carries nothing leads to an error and
// not to a hang.
const patience = 5 * time.Second

// In runs fn in e's namespace. An endpoint without one is in this process's own.
func In(e probe.Endpoint, fn func() error) error {
	if e.NS == nil {
		return fn()
	}
	return e.NS.Do(fn)
}

// socket opens a blocking socket in e's namespace, bound to e's address and to port, or to any free port if
// port is 0.
func socket(e probe.Endpoint, kind int, port uint16) (fd int, at netip.AddrPort, err error) {
	err = In(e, func() (err error) {
		fd, err = unix.Socket(family(e.Addr), kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return 0, at, fmt.Errorf("%s: open a socket: %w", e.Name, err)
	}
	err = errors.Join(
		limit(fd),
		unix.Bind(fd, sockaddr(netip.AddrPortFrom(e.Addr, port))),
	)
	if err == nil {
		at, err = boundTo(fd)
	}
	if err != nil {
		return 0, at, errors.Join(fmt.Errorf("%s: %s: %w", e.Name, e.Addr, err), unix.Close(fd))
	}
	return fd, at, nil
}

func family(a netip.Addr) int {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

func boundTo(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
}

// Connect makes a TCP connection, and gives up when ctx ends.
func Connect(ctx context.Context, from probe.Endpoint, to netip.AddrPort) (fd int, err error) {
	if fd, _, err = socket(from, unix.SOCK_STREAM, 0); err != nil {
		return 0, err
	}
	release := shutdownOn(ctx, fd)
	err = retry(func() error { return unix.Connect(fd, sockaddr(to)) })
	release()
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%s connects to %s: %w", from.Name, to, err), unix.Close(fd))
	}
	return fd, nil
}

// limit bounds how long a call on the socket blocks.
func limit(fd int) error {
	tv := unix.NsecToTimeval(int64(patience))
	return errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv),
	)
}

// Adopt takes a connection out of Go's hands: it returns a blocking descriptor with the time limit
// of the generators' sockets, and closes c. The descriptor is the caller's.
func Adopt(c *net.TCPConn) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var dupErr error
	err = raw.Control(func(theirs uintptr) { fd, dupErr = unix.FcntlInt(theirs, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return 0, fmt.Errorf("duplicate a connection: %w", err)
	}
	if err := errors.Join(unix.SetNonblock(fd, false), limit(fd)); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// retry makes the call again while a signal interrupts it. Go's runtime sends its threads many.
func retry(call func() error) error {
	for {
		err := call()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// shutdownOn shuts the sockets down when ctx ends, so that calls that block on them return. The caller
// calls release once, before it closes the sockets; from then on they are left alone.
func shutdownOn(ctx context.Context, fds ...int) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		for _, fd := range fds {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// AnyCPU leaves it to the kernel where an end runs.
const AnyCPU = -1

// carry runs fn as onThread does, and then closes fd. When ctx ends, the socket is shut down, so that fn
// returns.
func carry(ctx context.Context, fd, cpu int, fn func() error) error {
	defer unix.Close(fd)
	defer shutdownOn(ctx, fd)()
	return onThread(cpu, fn)
}

// onThread runs fn on a thread of its own, on that CPU unless it is AnyCPU, and waits for it. The thread ends
// with fn, so that its changed settings reach no other goroutine.
func onThread(cpu int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good
		// By default the kernel may wake a sleeper 50 us late, which is as long as the sleeps are.
		err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		if err == nil && cpu != AnyCPU {
			var set unix.CPUSet
			set.Set(cpu)
			err = unix.SchedSetaffinity(0, &set)
		}
		if err != nil {
			done <- fmt.Errorf("a thread for CPU %d: %w", cpu, err)
			return
		}
		done <- fn()
	}()
	return <-done
}

// Sleep waits for d, or until ctx ends, which is its error.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

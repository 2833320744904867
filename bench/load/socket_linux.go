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

// socket opens a blocking socket in e's namespace, bound to e's address and a free port. An
// endpoint without a namespace is in this process's own.
func socket(e probe.Endpoint, kind int) (fd int, at netip.AddrPort, err error) {
	return socketAt(e, kind, 0)
}

func socketAt(e probe.Endpoint, kind int, port uint16) (fd int, at netip.AddrPort, err error) {
	open := func() (err error) {
		fd, err = unix.Socket(family(e.Addr), kind|unix.SOCK_CLOEXEC, 0)
		return err
	}
	if e.NS == nil {
		err = open()
	} else {
		err = e.NS.Do(open)
	}
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

// tcpPair makes one connection and returns the end that from opened and the end that to accepted.
func tcpPair(from, to probe.Endpoint) (out, in int, err error) {
	l, at, err := socket(to, unix.SOCK_STREAM)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(l)
	if err := unix.Listen(l, 1); err != nil {
		return 0, 0, fmt.Errorf("%s: listen: %w", to.Name, err)
	}
	if out, _, err = socket(from, unix.SOCK_STREAM); err != nil {
		return 0, 0, err
	}
	if err := retry(func() error { return unix.Connect(out, sockaddr(at)) }); err != nil {
		_ = unix.Close(out)
		return 0, 0, fmt.Errorf("%s connects to %s: %w", from.Name, at, err)
	}
	err = retry(func() (err error) {
		in, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		_ = unix.Close(out)
		return 0, 0, fmt.Errorf("%s accepts: %w", to.Name, err)
	}
	return out, in, limit(in) // an accepted socket does not inherit the limit
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

// ShutdownOn shuts the sockets down when ctx ends, so that calls that block on them return. The caller
// calls release once, before it closes the sockets; from then on they are left alone.
func ShutdownOn(ctx context.Context, fds ...int) (release func()) {
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

// onThread gives the calling goroutine a thread of its own for the rest of its life, on
// that CPU unless it is AnyCPU. The goroutine never unlocks it, so the thread ends with the goroutine and
// its changed settings reach no other.
func onThread(cpu int) error {
	runtime.LockOSThread()
	// By default the kernel may wake a sleeper 50 us late, which is as long as the sleeps are.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	if cpu == AnyCPU {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("run on CPU %d: %w", cpu, err)
	}
	return nil
}

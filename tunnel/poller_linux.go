package tunnel

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is a worker's epoll instance. It is itself registered with Go's
// network poller (an epoll descriptor is readable when it has events), so a
// worker that waits costs a parked goroutine, not a blocked thread, and the
// garbage collector never waits for it.
type poller struct {
	file   *os.File
	conn   syscall.RawConn
	fd     int
	events [32]unix.EpollEvent
	ready  [32]event
	n      int
	errno  syscall.Errno
	try    func(uintptr) bool // tryWait, bound once: a fresh closure would allocate
}

// event is one readable port.
type event struct {
	id     uint64
	failed bool // EPOLLERR: the port has errors to read
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // asks os.NewFile to register it
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make epoll nonblocking: %w", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), fd: fd}
	if p.conn, err = p.file.SyscallConn(); err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p.try = p.tryWait
	return p, nil
}

// wait blocks until at least one port is readable and returns the readable ones.
// borrowed: the slice is valid until the next wait. The error wraps os.ErrClosed
// after close.
func (p *poller) wait() ([]event, error) {
	if err := p.conn.Read(p.try); err != nil {
		return nil, err
	}
	if p.errno != 0 {
		return nil, fmt.Errorf("epoll_wait: %w", p.errno)
	}
	for i := range p.n {
		e := &p.events[i]
		p.ready[i] = event{
			id:     uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32,
			failed: e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0,
		}
	}
	return p.ready[:p.n], nil
}

// tryWait is false if nothing is ready; the goroutine is then parked.
func (p *poller) tryWait(fd uintptr) bool {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd,
			uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		p.n, p.errno = int(n), errno
		return errno != 0 || n > 0
	}
}

// add reports fd as id whenever it is readable (level-triggered, so that a port
// left half-read at the end of its budget is reported again).
func (p *poller) add(fd int, id queueID) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	return p.control(unix.EPOLL_CTL_ADD, fd, &e)
}

// remove stops reporting fd. A descriptor that is gone already is no error.
func (p *poller) remove(fd int) {
	_ = p.control(unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
}

func (p *poller) control(op, fd int, e *unix.EpollEvent) error {
	var err error
	if cerr := p.conn.Control(func(epfd uintptr) { err = unix.EpollCtl(int(epfd), op, fd, e) }); cerr != nil {
		return cerr
	}
	return err
}

// close wakes wait for good.
func (p *poller) close() { _ = p.file.Close() }

package tunnel

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepFor is how long a worker that has a processor to itself waits with it, in milliseconds,
// before it gives it back: what is idle for longer costs nothing.
const keepFor = 5

// bell is the id of the eventfd that interrupts a wait; no queue has it.
const bell = ^uint64(0)

// poller is a worker's epoll instance. It waits in the kernel, and not in Go's network
// poller, which would wake it through two more threads. For the same reason no
// descriptor of a port may be registered there: the runtime would be woken by every packet
// as well, and find nothing to do.
type poller struct {
	fd, bell int
	events   [32]unix.EpollEvent
	ready    [32]event
	blocked  time.Duration // how long the last wait took
	woke     time.Time     // when it ended
	worked   time.Duration // how long it was from the wait before that to the last
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
	b, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p := &poller{fd: fd, bell: b}
	if err := p.add(b, queueID(bell)); err != nil {
		return nil, errors.Join(fmt.Errorf("epoll_ctl: %w", err), p.free())
	}
	return p, nil
}

// wait blocks until at least one port is readable and returns the readable ones, or until the bell is
// rung, and says so instead.
// keep says that there are processors (GOMAXPROCS) for all workers and for others besides: a
// worker that waits a short time then keeps its own. borrowed: the slice is valid until the
// next wait.
func (p *poller) wait(keep bool) (ready []event, rung bool, err error) {
	began := time.Now()
	n, errno := p.block(keep)
	p.blocked = time.Since(began)
	if !p.woke.IsZero() {
		p.worked = began.Sub(p.woke)
	}
	p.woke = began.Add(p.blocked)
	if errno != 0 {
		return nil, false, fmt.Errorf("epoll_wait: %w", errno)
	}
	for i := range p.events[:n] {
		e := &p.events[i]
		p.ready[i] = event{
			id:     uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32,
			failed: e.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0,
		}
		if p.ready[i].id == bell {
			p.hush()
			return nil, true, nil
		}
	}
	return p.ready[:n], false, nil
}

// block is epoll_wait: first with our processor, then without.
//
// A raw system call hides from the runtime that the thread sleeps. That spares handing the
// processor over and back, some microseconds a packet. The collector is not held
// up: it sends the thread a signal, which ends the call with EINTR.
func (p *poller) block(keep bool) (n int, errno unix.Errno) {
	for {
		timeout := uintptr(0)
		if keep {
			timeout = keepFor
		}
		k, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), timeout, 0, 0)
		switch {
		case errno == unix.EINTR:
			runtime.Gosched()
			continue
		case errno != 0 || k > 0:
			return int(k), errno
		}
		k, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)), ^uintptr(0), 0, 0)
		if errno != unix.EINTR {
			return int(k), errno
		}
	}
}

// add reports fd as id whenever it is readable (level-triggered, so that a port
// left half-read at the end of its budget is reported again).
func (p *poller) add(fd int, id queueID) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e)
}

// remove stops reporting fd. A descriptor that is gone already is no error.
func (p *poller) remove(fd int) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
}

// ring interrupts the wait that there is, or the next one.
func (p *poller) ring() {
	one := [8]byte{0: 1, 7: 1} // not 0 in either byte order
	_, _ = unix.Write(p.bell, one[:])
}

// hush takes back what ring did until now. The caller looks afterwards for the reason of the bell.
func (p *poller) hush() {
	var count [8]byte
	_, _ = unix.Read(p.bell, count[:])
}

// free gives the descriptors back, once nobody waits any more.
func (p *poller) free() error { return errors.Join(unix.Close(p.bell), unix.Close(p.fd)) }

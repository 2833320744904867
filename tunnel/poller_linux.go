package tunnel

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepFor is how long a worker with a processor of its own blocks without giving it back, in milliseconds.
const keepFor = 5

// wakeupID is the id of the eventfd that interrupts a wait. No queue has it.
const wakeupID = ^uint64(0)

// poller is a worker's epoll instance. The worker blocks in epoll_wait rather than in Go's network poller,
// which would wake it through two more threads. No descriptor of a port may be registered with Go's poller,
// since every packet would wake the runtime as well.
type poller struct {
	fd, wakeupFD int
	events       [32]unix.EpollEvent
	ready        [32]event
	blocked      time.Duration // duration of the last wait
	woke         time.Time     // when the last wait ended
	worked       time.Duration // time between the last two waits
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
	p := &poller{fd: fd, wakeupFD: b}
	if err := p.add(b, queueID(wakeupID)); err != nil {
		return nil, errors.Join(fmt.Errorf("epoll_ctl: %w", err), p.free())
	}
	return p, nil
}

// wait blocks until a port is readable, and returns the readable ports. wakeup interrupts it: then it returns
// woken and no ports. keep means that there are processors (GOMAXPROCS) for all workers and others besides,
// so that the worker keeps its own during a short wait. borrowed: ready is valid until the next wait.
func (p *poller) wait(keep bool) (ready []event, woken bool, err error) {
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
		if p.ready[i].id == wakeupID {
			p.drain()
			return nil, true, nil
		}
	}
	return p.ready[:n], false, nil
}

// block calls epoll_wait: first for keepFor milliseconds with the worker's processor, then without.
//
// A raw system call hides from the runtime that the thread sleeps. That saves handing the processor over and
// back, which takes some microseconds per packet. It does not delay the garbage collector, whose signal ends
// the call with EINTR.
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

// add reports fd as id whenever it is readable. It is level-triggered, so that a queue that still has packets
// after its batch is reported again.
func (p *poller) add(fd int, id queueID) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(uint32(id)), Pad: int32(uint32(id >> 32))}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e)
}

// remove stops reporting fd. It ignores a closed descriptor.
func (p *poller) remove(fd int) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, &unix.EpollEvent{})
}

// wakeup interrupts the current wait or, if there is none, the next.
func (p *poller) wakeup() {
	one := [8]byte{0: 1, 7: 1} // not 0 in either byte order
	_, _ = unix.Write(p.wakeupFD, one[:])
}

// drain resets the eventfd. The caller checks afterwards why it was woken.
func (p *poller) drain() {
	var count [8]byte
	_, _ = unix.Read(p.wakeupFD, count[:])
}

// free closes the descriptors. No goroutine may be in wait.
func (p *poller) free() error { return errors.Join(unix.Close(p.wakeupFD), unix.Close(p.fd)) }

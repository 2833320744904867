package port

import (
	"encoding/binary"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls are made on nonblocking descriptors, so they can be raw system calls. They do not delay the
// garbage collector, and the scheduler need not know of them. (dataplane: RawSyscall raised the throughput of
// one stream from 8.5 to 9.4 Gb/s.)

func read(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)))
	return int(n), errno
}

func recv(fd int, b []byte, flags int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), uintptr(flags), 0, 0)
	return int(n), errno
}

func write(fd int, b []byte) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// syscallArea is a worker's memory for system calls, about 160 KB.
type syscallArea struct {
	messageArea
	send  sendQueue
	merge merger
}

// messageArea holds the arguments of recvmsg. Its pointers are set once, so that a call allocates nothing.
type messageArea struct {
	msg  unix.Msghdr
	iov  unix.Iovec
	name socketName
	ctl  [128]byte // space for a TOS, a segment size and their headers
	poll [1]unix.PollFd
	// patience is the rest of turnPatience.
	patience time.Duration
}

func (a *messageArea) init() {
	a.msg.Iov = &a.iov
	a.msg.SetIovlen(1)
	a.msg.Name = &a.name[0]
	a.patience = turnPatience
}

func (a *messageArea) payload(b []byte) { a.iov = iovec(b) }

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

func (a *messageArea) recvmsg(fd, flags int) (int, unix.Errno) {
	a.msg.Namelen = uint32(len(a.name))
	a.msg.Control = &a.ctl[0]
	a.msg.SetControllen(len(a.ctl))
	a.msg.Flags = 0
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&a.msg)),
		uintptr(flags))
	return int(n), errno
}

// messageHeader is struct mmsghdr (linux/socket.h). Go aligns it as C does.
type messageHeader struct {
	unix.Msghdr
	sent uint32 // bytes
}

// gather sets the payload to the concatenation of v.
func (h *messageHeader) gather(v []unix.Iovec) {
	h.Iov = unsafe.SliceData(v)
	h.SetIovlen(len(v))
}

// sendmmsg sends ms, and returns how many were sent: at least one unless there is an error.
func sendmmsg(fd int, ms []messageHeader) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(ms))), uintptr(len(ms)), 0, 0, 0)
	return int(n), errno
}

func writev(fd int, v []unix.Iovec) unix.Errno {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))),
			uintptr(len(v)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// turnPatience is how long a worker waits in one turn for full sockets. The wait is the underlay's
// backpressure, and avoids loss. Afterwards the turn drops packets that do not fit, because the worker's
// other ports wait.
const turnPatience = 5 * time.Millisecond

// waitWritable blocks the thread until fd is writable, or for the rest of the turn's patience. It returns
// false if no patience is left.
func (a *messageArea) waitWritable(fd int) bool {
	if a.patience <= 0 {
		return false
	}
	a.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	most, began := unix.NsecToTimespec(int64(a.patience)), time.Now()
	_, _ = unix.Ppoll(a.poll[:], &most, nil)
	a.patience -= time.Since(began)
	return true
}

// readable reports whether fd is readable.
func (a *messageArea) readable(fd int) bool {
	a.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&a.poll)), 1,
		uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}

// controlMessage is one control message: header and data.
type controlMessage struct {
	level, kind int32
	data        []byte
}

// nextControl splits the first message off b. ok is false at the end.
func nextControl(b []byte) (m controlMessage, rest []byte, ok bool) {
	if len(b) < unix.SizeofCmsghdr {
		return m, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	n := int(h.Len)
	if n < unix.CmsgLen(0) || n > len(b) {
		return m, nil, false
	}
	m = controlMessage{h.Level, h.Type, b[unix.CmsgLen(0):n]}
	return m, b[min(len(b), unix.CmsgSpace(n-unix.CmsgLen(0))):], true
}

// control returns the control messages of the last recvmsg.
func (a *messageArea) control() []byte { return a.ctl[:min(int(a.msg.Controllen), len(a.ctl))] }

// sendControl holds the control messages of a send: a TOS and a segment size.
type sendControl struct {
	used int // bytes of ctl
	ctl  [64]byte
}

// put adds a message with v, an integer of size bytes.
func (c *sendControl) put(level, kind int32, size int, v int) {
	b := c.ctl[c.used:]
	h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	if data := b[unix.CmsgLen(0):]; size == 2 {
		binary.NativeEndian.PutUint16(data, uint16(v))
	} else {
		binary.NativeEndian.PutUint32(data, uint32(v))
	}
	c.used += unix.CmsgSpace(size)
}

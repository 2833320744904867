package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// Calls counts the system calls by which processes read and send, from files and sockets alike. Bytes moved
// through memory shared with the kernel need no such call, and are not counted.
type Calls struct {
	// of has for each process the descriptors of its threads' events.
	of []struct{ reads, sends []int }
}

// Count is how many calls one process has made.
type Count struct{ Reads, Sends int64 }

// CountCalls begins to count the calls of each process, also in threads that it starts meanwhile.
// The caller closes the Calls. If the machine has not mounted the kernel's list of events, it is mounted in
// the namespace in, where nobody else sees it.
func CountCalls(in *netns.Namespace, pids ...int) (*Calls, error) {
	id, err := tracepoint(in, "raw_syscalls/sys_enter")
	if err != nil {
		return nil, err
	}
	c := &Calls{}
	for _, pid := range pids {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			c.Close()
			return nil, err
		}
		c.of = append(c.of, struct{ reads, sends []int }{})
		of := &c.of[len(c.of)-1]
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name()) // the kernel names them by number
			reads, err := open(id, tid, reading())
			if errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if err != nil {
				c.Close()
				return nil, err
			}
			of.reads = append(of.reads, reads)
			sends, err := open(id, tid, sending())
			if errors.Is(err, unix.ESRCH) {
				continue
			}
			if err != nil {
				c.Close()
				return nil, err
			}
			of.sends = append(of.sends, sends)
		}
	}
	return c, nil
}

func reading() []int {
	return []int{unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG}
}

func sending() []int {
	return []int{unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG}
}

// tracepoint returns the number by which the kernel knows an event.
func tracepoint(in *netns.Namespace, name string) (id uint64, err error) {
	const tracing = "/sys/kernel/tracing"
	read := func() error {
		b, err := os.ReadFile(tracing + "/events/" + name + "/id")
		if err == nil {
			id, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
		return err
	}
	err = in.Do(func() error {
		if read() == nil {
			return nil
		}
		// The namespace's thread has mounts of its own, so this one is seen nowhere else.
		if err := unix.Mount("tracefs", tracing, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mount the kernel's list of events (tracefs, which takes root and "+
				"CONFIG_FTRACE_SYSCALLS): %w", err)
		}
		return errors.Join(read(), unix.Unmount(tracing, unix.MNT_DETACH))
	})
	return id, err
}

// open opens a counter of those system calls of a thread that are among calls.
func open(event uint64, tid int, calls []int) (fd int, err error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: event, Bits: unix.PerfBitInherit}
	fd, err = unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("perf_event_open for system calls (it takes CAP_PERFMON or root): %w", err)
	}
	var filter []string
	for _, n := range calls {
		filter = append(filter, fmt.Sprintf("id == %d", n))
	}
	text, err := unix.BytePtrFromString(strings.Join(filter, " || "))
	if err == nil {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_SET_FILTER,
			uintptr(unsafe.Pointer(text))); errno != 0 {
			err = fmt.Errorf("choose system calls to count: %w", errno)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
	}
	return fd, err
}

// Read returns how many calls each process has made since CountCalls, in the order of its pids.
func (c *Calls) Read() (l []Count, err error) {
	for _, of := range c.of {
		reads, wrong := sum(of.reads)
		sends, wrongToo := sum(of.sends)
		l, err = append(l, Count{reads, sends}), errors.Join(err, wrong, wrongToo)
	}
	return l, err
}

func sum(fds []int) (total int64, err error) {
	for _, fd := range fds {
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return total, fmt.Errorf("read a count: %w", err)
		}
		total += int64(binary.NativeEndian.Uint64(b[:]))
	}
	return total, nil
}

// Close ends the counting.
func (c *Calls) Close() {
	for _, of := range c.of {
		for _, fd := range append(of.reads, of.sends...) {
			_ = unix.Close(fd)
		}
	}
}

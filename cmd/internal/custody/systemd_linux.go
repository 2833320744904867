package custody

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// systemd is the descriptor store of the service manager that started us (sd_notify(3): FDSTORE,
// FDSTOREREMOVE, FDPOLL, BARRIER; sd_listen_fds(3)). Descriptor n has the name weft-n there. The store drops
// a duplicate of a descriptor that it has already, whatever its name, so an item leaves the store before the
// same descriptors get new numbers.
type systemd struct {
	socket string // NOTIFY_SOCKET
	most   int    // FileDescriptorStoreMax=
	used   int    // how many it has, as Custody counts them
}

const (
	storePrefix = "weft-"
	// barrierWait bounds how long the manager may take to read what was sent.
	barrierWait = 5 * time.Second
)

// newSystemd returns the store of which env tells, nil if there is none. Systemd from 254 on says by FDSTORE
// how many descriptors it keeps. The unit says it for earlier ones.
func newSystemd(env func(string) string) *systemd {
	most, err := strconv.Atoi(env("FDSTORE"))
	if err != nil || most <= 0 || env("NOTIFY_SOCKET") == "" {
		return nil
	}
	return &systemd{socket: env("NOTIFY_SOCKET"), most: most}
}

// CloseOnExec keeps what the service manager handed over from every process that we start. It comes before
// the first of them.
func CloseOnExec(env func(string) string) {
	for fd := range handedOver(env) {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC) // it fails only for one that is not open
	}
}

// handedOver returns the names of the descriptors that the service manager handed over.
func handedOver(env func(string) string) map[int]string {
	if pid, err := strconv.Atoi(env("LISTEN_PID")); err != nil || pid != os.Getpid() {
		return nil
	}
	n, err := strconv.Atoi(env("LISTEN_FDS"))
	if err != nil || n <= 0 || n > 1<<20 {
		return nil
	}
	names := strings.Split(env("LISTEN_FDNAMES"), ":")
	fds := map[int]string{}
	for k := range min(n, len(names)) {
		fds[3+k] = names[k]
	}
	return fds
}

// fromStore returns what of handed is ours, by number. An earlier weft gave other names: unread has those,
// and their descriptors are closed.
func fromStore(handed map[int]string) (fds map[uint64]int, unread []string) {
	fds = map[uint64]int{}
	for fd, name := range handed {
		number, ours := strings.CutPrefix(name, storePrefix)
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || !ours {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 64)
		if _, twice := fds[n]; err != nil || twice {
			unread = append(unread, name)
			_ = unix.Close(fd) // a duplicate
			continue
		}
		fds[n] = fd
	}
	return fds, unread
}

func nameOf(n uint64) string { return storePrefix + strconv.FormatUint(n, 10) }

// Store implements shelf.
func (s *systemd) Store(n uint64, fd int) error {
	if s.used >= s.most {
		return &refusedError{fmt.Sprintf("the service manager keeps %d descriptors, and no more: raise "+
			"FileDescriptorStoreMax="+
			" (and FDSTORE) in weftd's unit", s.most)}
	}
	err := s.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+nameOf(n), []int{fd})
	if err == nil {
		s.used++
	}
	return err
}

// Remove implements shelf.
func (s *systemd) Remove(numbers ...uint64) error {
	for _, n := range numbers {
		if err := s.removeName(nameOf(n)); err != nil {
			return err
		}
	}
	return nil
}

func (s *systemd) removeName(name string) error {
	return s.notify("FDSTOREREMOVE=1\nFDNAME="+name, nil)
}

// notify sends state and fds to the service manager.
func (s *systemd) notify(state string, fds []int) error {
	// Go's connected one takes no descriptors
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // a datagram was sent or not
	limit := unix.NsecToTimeval(barrierWait.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	var control []byte
	if len(fds) > 0 {
		control = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(fd, []byte(state), control, &unix.SockaddrUnix{Name: s.socket}, unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return s.silent()
		case err != nil:
			return fmt.Errorf("tell the service manager at %s: %w", s.socket, err)
		default:
			return nil
		}
	}
}

func (s *systemd) silent() error {
	return fmt.Errorf("the service manager does not read what weftd tells it (%s): %w", s.socket, errSilent)
}

// Flush implements shelf. It returns when the manager has read all that was sent: the manager then closes the
// other end of a pipe. Until then a socket that it has keeps its port.
func (s *systemd) Flush() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	err := s.notify("BARRIER=1", p[1:])
	_ = unix.Close(p[1])                    // nothing is written to it
	defer func() { _ = unix.Close(p[0]) }() // nor to this end
	if err != nil {
		return err
	}
	for end := time.Now().Add(barrierWait); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p[0])}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return s.silent()
		default:
			return nil
		}
	}
}

package custody

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/rights"
)

// askStore takes up what the service manager's store handed over.
func (c *Custody) askStore() {
	handed := c.o.handed
	if handed == nil {
		handed = handedOver(c.o.Getenv)
	}
	fds, unread := fromStore(handed)
	ours := c.systemd != nil
	// it gives back also what a unit without a store has left
	old := systemd{socket: c.o.Getenv("NOTIFY_SOCKET")}
	if len(unread) > 0 {
		c.o.Logger.Warn("the service manager's store has descriptors of another version of weft, which are given "+
			"back: pods"+
			" that were attached directly have to be attached again", "descriptors", len(unread))
	}
	for n := range fds {
		if ours {
			c.has[n] = true
		} else {
			unread = append(unread, nameOf(n))
		}
	}
	for _, name := range unread {
		if err := old.removeName(name); err != nil {
			c.o.Logger.Warn("descriptors stay in the service manager's store", "reason", err)
			break
		}
	}
	if len(fds) > 0 {
		c.load(fds, ours)
	}
}

// askHolder takes up what a holder has, if there is one. It is told to end if it is of no use.
func (c *Custody) askHolder(ctx context.Context) {
	if c.socket == "" {
		return
	}
	s, r, err := c.connect(ctx, false)
	switch no := (*refusedError)(nil); {
	case errors.Is(err, errNoHolder):
		return
	case errors.As(err, &no):
		r, _, err := End(ctx, c.socket)
		c.o.Logger.Warn("the holder keeps descriptors that are not this node's: it was told to end; the pods "+
			"that they belong to"+
			" have to be attached again", "descriptors", r.Descriptors, "because", no.why, "error", err)
		return
	case err != nil:
		c.o.Logger.Warn("what the last weftd had kept cannot be asked for", "reason", err)
		return
	}
	fds, err := s.take()
	if err != nil {
		c.o.Logger.Warn("the holder did not hand over everything", "got", len(fds), "reason", err)
	}
	ours := c.systemd == nil && c.o.Timeout > 0 && err == nil
	if ours {
		c.session, c.holder = s, r.PID
		for n := range fds {
			c.has[n] = true
		}
	} else {
		c.former = s
	}
	if len(fds) > 0 {
		c.load(fds, ours)
	}
}

// load makes items of fds, which it takes over. Those of our own shelf keep their numbers and the index.
func (c *Custody) load(fds map[uint64]int, ours bool) {
	var x *index
	if fd, ok := fds[0]; ok {
		x = openIndex(fd)
		delete(fds, 0)
	}
	if x != nil {
		entries, err := x.whole(fds)
		if err != nil {
			c.o.Logger.Warn("what was kept cannot be used", "reason", err)
		}
		away := x.away()
		for _, e := range entries {
			c.adopt(e, fds, ours, away)
		}
		c.away = max(c.away, away)
	}
	for n := range fds {
		c.next = max(c.next, n+1)
	}
	rights.Close(slices.Collect(maps.Values(fds))) // what belongs to no item leaves the shelf
	switch {
	case x == nil:
	case ours && c.index == nil:
		c.index = x
	default:
		x.close()
	}
}

// adopt makes an item of e, whose descriptors it takes out of fds.
func (c *Custody) adopt(e entry, fds map[uint64]int, ours bool, away time.Duration) {
	if _, twice := c.items[e.Name]; twice || anyGone(e.fds) {
		return
	}
	for k, n := range e.Numbers {
		delete(fds, n)
		if ours {
			c.next = max(c.next, n+1)
		}
		if c.o.Left == nil && away > StaleAfter {
			c.discarded += drain(e.fds[k])
		}
	}
	if !ours {
		e.Numbers = c.numbers(len(e.fds))
	}
	c.items[e.Name] = e
}

// gone reports whether fd is a TUN whose device was deleted, or whose namespace has ended. It never gets a
// device again.
func gone(fd int) bool { return errors.Is(interfaceOf(fd), unix.EBADFD) }

// anyGone reports whether one of fds is gone.
func anyGone(fds []int) bool { return slices.ContainsFunc(fds, gone) }

// interfaceOf asks for the device of a TUN. The error is EBADFD for one that has none.
func interfaceOf(fd int) error {
	var request [unix.IFNAMSIZ + 24]byte // struct ifreq, whose size no architecture exceeds
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNGETIFF,
		uintptr(unsafe.Pointer(&request[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// drainMost bounds how many packets are taken out of one queue. A device holds fewer unless its txqueuelen
// was raised a lot.
const drainMost = 1 << 16

// drain discards the packets that wait at a TUN, and returns how many they were. It takes nothing of anything
// else.
func drain(fd int) (packets int) {
	if interfaceOf(fd) != nil {
		return 0
	}
	b := make([]byte, 66<<10) // the longest packet, with its virtio-net header
	for packets < drainMost {
		// The descriptor may block, so it is asked first. Nobody else reads it.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return packets
		}
		if _, err = unix.Read(fd, b); err != nil && !errors.Is(err, unix.EINTR) {
			return packets
		}
		packets++
	}
	return packets
}

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// frames are the packet sockets on the underlay's link, and the next hops of what they send. They read
// and write whole Ethernet frames. It is safe for concurrent use.
type frames struct {
	local     netip.AddrPort
	log       *slog.Logger
	fds       []int
	wanted    int // how many were asked for
	listening int // how many of them, the first ones, receive
	// out are the sockets to send by, as many as fds. The kernel tells a socket of room whenever a frame that
	// left by it is freed, and where it cuts a superframe of each that it made of it. That costs much if
	// somebody waits at the socket, as epoll does at fds; nobody waits at these.
	out  []int
	link int
	hops atomic.Pointer[hops]
	gro  *OffloadSwitch // counts runs that arrive; the port's UDP socket has the same
	lost atomic.Uint64  // frames that PACKET_STATISTICS said were lost
}

// openFrames makes so many packet sockets, which as yet receive nothing.
func openFrames(o RawOptions, local netip.AddrPort, queues int, gro *OffloadSwitch) (*frames, error) {
	f := &frames{local: local, log: o.logger(), link: o.Link, gro: gro, wanted: queues}
	f.hops.Store(&hops{})
	for range queues {
		if err := errors.Join(f.openIn(), f.openOut()); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// openIn makes a packet socket to receive by, which as yet receives nothing.
func (f *frames) openIn() error {
	fd, err := f.open(&f.fds)
	if err != nil {
		return err
	}
	if err := deafen(fd); err != nil {
		return err
	}
	// Without it the kernel clones every frame that leaves the link, only for the filter to drop it. It is
	// since Linux 4.20.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	return force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
}

// openOut makes a packet socket to send by, which never receives.
func (f *frames) openOut() error {
	fd, err := f.open(&f.out)
	if err != nil {
		return err
	}
	return force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
}

// open adds a packet socket of no protocol, which receives nothing, to those in to.
func (f *frames) open(to *[]int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fd, fmt.Errorf("%w: it takes CAP_NET_RAW", err)
	case err != nil:
		return fd, fmt.Errorf("%w (CONFIG_PACKET)", err)
	}
	*to = append(*to, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fd, fmt.Errorf("PACKET_VNET_HDR: %w", err)
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: f.link})
}

// listen has frames arrive from now on.
func (f *frames) listen() error {
	if f.listening > 0 {
		return nil
	}
	// All protocols, because that is where a socket sees a frame before the ingress hooks
	// drop it; a socket for IPv4 alone comes after them.
	all := bits.ReverseBytes16(unix.ETH_P_ALL)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // network order
		all = unix.ETH_P_ALL
	}
	filter, err := frameFilter(f.local)
	if err != nil {
		return err
	}
	for _, fd := range f.fds { // all of them deaf as yet
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: f.link, Protocol: all}); err != nil {
			return fmt.Errorf("listen for frames on link %d: %w", f.link, err)
		}
	}
	f.listening = len(f.fds)
	if f.listening > 1 {
		if err := f.fanOut(); err != nil {
			// A group without its program gives all frames to the first.
			f.log.Warn("one worker receives all frames", "local", f.local, "cause", err)
			f.listening = 1
		}
	}
	for _, fd := range f.fds[:f.listening] {
		err = errors.Join(err, attachFilter(fd, filter))
	}
	return err
}

// fanOut makes a group of the packet sockets, in which each frame goes to one. While it is in the
// making they must be deaf: those outside it get every frame.
func (f *frames) fanOut() error {
	const unique = unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
	group := unix.PACKET_FANOUT_CBPF << 16
	for i, fd := range f.fds {
		arg := group
		if i == 0 {
			arg |= unique
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
			return fmt.Errorf("PACKET_FANOUT: %w", err)
		}
		if i > 0 {
			continue
		}
		id, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
		if err != nil {
			return fmt.Errorf("PACKET_FANOUT: %w", err)
		}
		group |= id & 0xffff
	}
	program, err := sharing(f.local.Addr().Is6(), len(f.fds))
	if err != nil {
		return err
	}
	// The group's, not the socket's.
	if err := unix.SetsockoptSockFprog(f.fds[0], unix.SOL_PACKET, unix.PACKET_FANOUT_DATA,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("PACKET_FANOUT_DATA: %w", err)
	}
	return nil
}

// hops are the next hops by outer address. Immutable but for the hops' clocks.
type hops map[netip.Addr]*hop

type hop struct {
	template encap.FrameTemplate
	next     NextHop
	// confirm is when to let the kernel send once, Unix nanoseconds.
	confirm atomic.Int64
}

// confirmEvery is how often one run to a next hop is sent by the kernel: only what it sends
// itself makes it ask whether the neighbour is still there (NUD_STALE to NUD_PROBE).
const confirmEvery = 10 * time.Second

// setNextHops replaces the next hops.
func (f *frames) setNextHops(next map[netip.Addr]NextHop) {
	was, now := *f.hops.Load(), make(hops, len(next))
	for to, n := range next {
		if h := was[to]; h != nil && h.next == n {
			now[to] = h
			continue
		}
		t, err := encap.NewFrameTemplate(n.Local, n.Remote, f.local, netip.AddrPortFrom(to, f.local.Port()))
		if err != nil {
			continue // a next hop that nothing can be sent to
		}
		now[to] = &hop{template: t, next: n}
	}
	f.hops.Store(&now)
}

// hop is the next hop to an outer address at now (Unix nanoseconds); nil if the kernel is to send. due says
// that there is one, but that it is time for the kernel to.
func (f *frames) hop(to netip.Addr, now int64) (h *hop, due bool) {
	h = (*f.hops.Load())[to]
	if h != nil && now >= h.confirm.Load() {
		return h, true
	}
	return h, false
}

// queues are those of the packet sockets. Several are read by a worker each.
func (f *frames) queues() (l []Queue) {
	for i, fd := range f.fds {
		l = append(l, FDQueue{fd, homeOf(i, len(f.fds)), func(r *Ring) error { return f.read(fd, r) }, nil})
	}
	return l
}

// overflow is how many frames the kernel dropped because a receive buffer was full.
func (f *frames) overflow() uint64 {
	for _, fd := range f.fds {
		if s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			f.lost.Add(uint64(s.Drops)) // reading clears it
		}
	}
	return f.lost.Load()
}

func (f *frames) close() error {
	all := slices.Concat(f.fds, f.out)
	errs := make([]error, len(all))
	var wg sync.WaitGroup // each waits for RCU: they wait together
	for i, fd := range all {
		wg.Go(func() { errs[i] = unix.Close(fd) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

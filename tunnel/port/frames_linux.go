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

// frames are the packet sockets on the underlay's link, and the next hops of the frames sent. They read and
// write whole Ethernet frames. frames is safe for concurrent use.
type frames struct {
	local     netip.AddrPort
	log       *slog.Logger
	fds       []int
	requested int // number of sockets requested
	listening int // number of sockets, the first of fds, that receive
	// out are the sockets to send by, as many as fds. The kernel signals free space on a socket for every frame
	// that it frees, and for each segment of a superframe. That is expensive if epoll waits on the socket, as it
	// does on fds. Nothing waits on out.
	out  []int
	link int
	hops atomic.Pointer[hops]
	gro  *OffloadSwitch // counts received runs; shared with the UDP socket
	lost atomic.Uint64  // drops reported by PACKET_STATISTICS
}

// openFrames opens packet sockets, which receive nothing until listen.
func openFrames(o RawOptions, local netip.AddrPort, queues int, gro *OffloadSwitch) (*frames, error) {
	f := &frames{local: local, log: o.logger(), link: o.Link, gro: gro, requested: queues}
	f.hops.Store(&hops{})
	for range queues {
		if err := errors.Join(f.openIn(), f.openOut()); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	return f, nil
}

// openIn opens a packet socket for receiving.
func (f *frames) openIn() error {
	fd, err := f.open(&f.fds)
	if err != nil {
		return err
	}
	if err := dropInput(fd); err != nil {
		return err
	}
	// Otherwise the kernel clones every outgoing frame just for the filter to drop it. Since Linux 4.20.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	return force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
}

// openOut opens a packet socket for sending. It never receives.
func (f *frames) openOut() error {
	fd, err := f.open(&f.out)
	if err != nil {
		return err
	}
	return force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
}

// open opens a packet socket with protocol 0, which receives nothing, and appends it to to.
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

// listen starts receiving frames.
func (f *frames) listen() error {
	if f.listening > 0 {
		return nil
	}
	// ETH_P_ALL sockets get a frame before the ingress hooks drop it. A socket for IPv4 alone gets it after
	// them.
	all := bits.ReverseBytes16(unix.ETH_P_ALL)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // network byte order
		all = unix.ETH_P_ALL
	}
	filter, err := frameFilter(f.local)
	if err != nil {
		return err
	}
	for _, fd := range f.fds { // all still drop their input
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: f.link, Protocol: all}); err != nil {
			return fmt.Errorf("listen for frames on link %d: %w", f.link, err)
		}
	}
	f.listening = len(f.fds)
	if f.listening > 1 {
		if err := f.fanOut(); err != nil {
			// A group without its program would send all frames to the first socket.
			f.log.Warn("one worker receives all frames", "local", f.local, "cause", err)
			f.listening = 1
		}
	}
	for _, fd := range f.fds[:f.listening] {
		err = errors.Join(err, attachFilter(fd, filter))
	}
	return err
}

// fanOut makes the packet sockets a group, in which each frame goes to one socket. Until then they must drop
// their input, because a socket outside of the group gets every frame.
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
	program, err := selector(f.local.Addr().Is6(), len(f.fds))
	if err != nil {
		return err
	}
	// The program belongs to the group, not to the socket.
	if err := unix.SetsockoptSockFprog(f.fds[0], unix.SOL_PACKET, unix.PACKET_FANOUT_DATA,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("PACKET_FANOUT_DATA: %w", err)
	}
	return nil
}

// hops maps outer addresses to next hops. It is immutable, except for confirm.
type hops map[netip.Addr]*hop

type hop struct {
	template encap.FrameTemplate
	next     NextHop
	// confirm is when the kernel must send once, Unix nanoseconds.
	confirm atomic.Int64
}

// confirmEvery is how often the kernel sends one run to a next hop. Only packets that the kernel itself sends
// make it probe the neighbour (NUD_STALE to NUD_PROBE).
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
			continue // nothing can be sent to this next hop
		}
		now[to] = &hop{template: t, next: n}
	}
	f.hops.Store(&now)
}

// hop returns the next hop of an outer address at now (Unix nanoseconds). It returns nil if the kernel must
// send. due means that it is time for the kernel to send once.
func (f *frames) hop(to netip.Addr, now int64) (h *hop, due bool) {
	h = (*f.hops.Load())[to]
	if h != nil && now >= h.confirm.Load() {
		return h, true
	}
	return h, false
}

// queues returns the queues of the packet sockets. If there are several, each has its own worker.
func (f *frames) queues() (l []Queue) {
	for i, fd := range f.fds {
		l = append(l, FDQueue{fd, workerFor(i, len(f.fds)), func(r *Ring) error { return f.read(fd, r) }, nil})
	}
	return l
}

// overflow returns the number of frames that the kernel dropped because a receive buffer was full.
func (f *frames) overflow() uint64 {
	for _, fd := range f.fds {
		if s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			f.lost.Add(uint64(s.Drops)) // reading resets the counter
		}
	}
	return f.lost.Load()
}

func (f *frames) close() error {
	all := slices.Concat(f.fds, f.out)
	errs := make([]error, len(all))
	var wg sync.WaitGroup // each close waits for RCU: run them concurrently
	for i, fd := range all {
		wg.Go(func() { errs[i] = unix.Close(fd) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

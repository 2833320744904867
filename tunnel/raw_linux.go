package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// RawOptions says which link a raw underlay port sends and receives on.
type RawOptions struct {
	// UDPOptions are those of the bound UDP socket; Device is not looked at.
	UDPOptions
	// Link is the index of the underlay's link, an Ethernet device.
	Link int
	// TAP names the device through which tunnel GSO leaves, or is a template such as
	// "weft-tx%d"; "" does without. It is persistent, and a device that exists is attached to.
	TAP string
}

// NextHop is how frames get to another node's outer address: the link addresses of our
// end and of the node itself or the gateway to it.
type NextHop struct {
	Local, Remote encap.MAC
}

// Raw is the underlay as whole Ethernet frames, each with a virtio-net header: an
// AF_PACKET socket (path raw). Beside it a UDP socket stays bound: the port is ours, the
// kernel's GRO stays on, fragments and ICMP errors arrive there, and what has no known
// next hop leaves there. It is safe for concurrent use.
type Raw struct {
	*OffloadSocket
	packets   []int // the AF_PACKET sockets
	listening int   // how many of them, the first ones, receive
	link      int
	hops      atomic.Pointer[hops]
	tap       *tap // nil: none
	tunnel    offload
	overflow  atomic.Uint64 // frames that PACKET_STATISTICS said were lost
}

// hops are the next hops by outer address. Immutable but for the hops' clocks.
type hops map[netip.Addr]*hop

type hop struct {
	template encap.FrameTemplate
	next     NextHop
	// confirm is when to let the kernel send once, Unix nanoseconds.
	confirm atomic.Int64
}

// confirmEvery is how often one run to a next hop takes the kernel's way: only what it sends
// itself makes it ask whether the neighbour is still there (NUD_STALE to NUD_PROBE).
const confirmEvery = 10 * time.Second

// OpenRaw opens the sockets in the current network namespace. The frames do not arrive
// before Listen. The error wraps unix.EPERM without CAP_NET_RAW, and those of ListenUDP.
func OpenRaw(o RawOptions) (*Raw, error) {
	queues := max(1, o.Queues)
	o.Queues = 1 // the UDP socket receives little
	s, err := ListenOffload(o.UDPOptions)
	if err != nil {
		return nil, err
	}
	r := &Raw{OffloadSocket: s, link: o.Link}
	r.hops.Store(&hops{})
	for range queues {
		if err := r.open(); err != nil {
			return nil, errors.Join(fmt.Errorf("packet socket for %v: %w", s.local, err), r.Close())
		}
	}
	s.wire = r // from now on the runs leave as frames
	r.openTAP(o)
	return r, nil
}

// open makes a packet socket, which as yet receives nothing.
func (r *Raw) open() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: it takes CAP_NET_RAW", err)
	case err != nil:
		return fmt.Errorf("%w (CONFIG_PACKET)", err)
	}
	r.packets = append(r.packets, fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fmt.Errorf("PACKET_VNET_HDR: %w", err)
	}
	if err := deafen(fd); err != nil {
		return err
	}
	// A clone of every frame that leaves the link would be filtered else. Since Linux 4.20;
	// before, the filter alone does it.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	return errors.Join(
		force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF),
		force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF),
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: r.link}),
	)
}

// Listen has the tunnel's unfragmented datagrams that reach the link arrive as frames from now
// on. The caller sees to it that they no longer reach the UDP socket as well, and attaches the port
// afterwards.
func (r *Raw) Listen() error {
	// All protocols, because that is where a socket sees a frame before the ingress hooks
	// drop it; a socket for IPv4 alone comes after them.
	all := bits.ReverseBytes16(unix.ETH_P_ALL)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // network order
		all = unix.ETH_P_ALL
	}
	filter, err := frameFilter(r.local)
	if err != nil {
		return err
	}
	for _, fd := range r.packets { // all of them deaf as yet
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: r.link, Protocol: all}); err != nil {
			return fmt.Errorf("listen for frames on link %d: %w", r.link, err)
		}
	}
	r.listening = len(r.packets)
	if r.listening > 1 {
		if err := r.fanOut(); err != nil {
			// A group without its program gives all frames to the first.
			r.log.Warn("one worker receives all frames", "local", r.local, "cause", err)
			r.listening = 1
		}
	}
	for _, fd := range r.packets[:r.listening] {
		err = errors.Join(err, attachFilter(fd, filter))
	}
	return err
}

// fanOut makes a group of the packet sockets, in which each frame goes to one. While it is in the
// making they must be deaf: those outside it get every frame.
func (r *Raw) fanOut() error {
	const unique = unix.PACKET_FANOUT_FLAG_UNIQUEID << 16
	group := unix.PACKET_FANOUT_CBPF << 16
	for i, fd := range r.packets {
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
	program, err := sharing(r.local.Addr().Is6(), len(r.packets))
	if err != nil {
		return err
	}
	// The group's, not the socket's.
	if err := unix.SetsockoptSockFprog(r.packets[0], unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("PACKET_FANOUT_DATA: %w", err)
	}
	return nil
}

// SetNextHops replaces the next hops, by outer address. To an address that is not among
// them the UDP socket sends.
func (r *Raw) SetNextHops(next map[netip.Addr]NextHop) {
	was, now := *r.hops.Load(), make(hops, len(next))
	for to, n := range next {
		if h := was[to]; h != nil && h.next == n {
			now[to] = h
			continue
		}
		t, err := encap.NewFrameTemplate(n.Local, n.Remote, r.local, netip.AddrPortFrom(to, r.local.Port()))
		if err != nil {
			continue // a next hop that nothing can be sent to
		}
		now[to] = &hop{template: t, next: n}
	}
	r.hops.Store(&now)
}

// Queues implements queuedPort: the frames, the socket for what is no frame of ours, and
// those of the lanes, which have errors.
func (r *Raw) Queues() []Queue {
	l := []Queue{frameQueue{r, r.packets[0], anyWorker}}
	for i, fd := range r.packets[1:] {
		l[0] = frameQueue{r, r.packets[0], 0}
		l = append(l, frameQueue{r, fd, i + 1})
	}
	l = slices.Insert(l, 1, Queue(r.OffloadSocket))
	return append(l, r.laneQueues()...)
}

func (r *Raw) readers() int { return r.listening }

// frameQueue reads the frames of one packet socket.
type frameQueue struct {
	of   *Raw
	fd   int
	home int
}

// PollFD implements Queue.
func (q frameQueue) PollFD() int { return q.fd }

// ReadBatch implements Queue.
func (q frameQueue) ReadBatch(r *Ring) error { return q.of.readFrames(q.fd, r) }

func (q frameQueue) place() int { return q.home }

// Offloads reports the port's.
func (r *Raw) Offloads() []OffloadStats {
	return append(r.OffloadSocket.Offloads(), r.tunnel.stats())
}

// Overflow is how many frames and datagrams the kernel dropped because a receive buffer was full.
func (r *Raw) Overflow() uint64 {
	for _, fd := range r.packets {
		if s, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			r.overflow.Add(uint64(s.Drops)) // reading clears it
		}
	}
	return r.overflow.Load() + r.OffloadSocket.Overflow()
}

// Close implements Port.
func (r *Raw) Close() error {
	errs := make([]error, 2+len(r.packets))
	var wg sync.WaitGroup // each waits for RCU: they wait together
	if r.tap != nil {
		wg.Go(func() { errs[0] = r.tap.close() })
	}
	for i, fd := range r.packets {
		wg.Go(func() { errs[2+i] = unix.Close(fd) })
	}
	errs[1] = r.OffloadSocket.Close()
	wg.Wait()
	return errors.Join(errs...)
}

package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// Inside is how something is done in a network namespace, as kernel.Kernel.Do does it.
type Inside func(f func() error) error

// bind is a device's sockets, one for each family in which the underlay has an address. It differs from the library's own in that the
// sockets are of a namespace and an address that we choose, that datagrams of one size leave in one piece without being copied together,
// and that what arrives joined is taken many at a time.
type bind struct {
	opens opener

	mu     sync.Mutex // guards what follows
	local4 netip.Addr // which socket is opened next
	local6 netip.Addr
	mark   uint32
	open   bool

	v4, v6 atomic.Pointer[socket] // nil while there is none
	runs   sync.Pool              // of *run
}

var _ conn.Bind = (*bind)(nil)

// opener opens a socket at an address of the underlay's, with a mark unless that is 0.
type opener func(local netip.AddrPort, mark uint32) (*net.UDPConn, error)

func newBind(opens opener) *bind {
	return &bind{opens: opens, runs: sync.Pool{New: func() any { return newRun() }}}
}

// at says to which addresses the next Open binds; the zero Addr for a family without a socket.
func (b *bind) at(local4, local6 netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.local4, b.local6 = local4, local6
}

// errNoAddress is of an underlay without any.
var errNoAddress = errors.New("the underlay has no address to send from")

// Open implements conn.Bind.
func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	var fns []conn.ReceiveFunc
	var faults []error
	for _, f := range []struct {
		local netip.Addr
		to    *atomic.Pointer[socket]
	}{{b.local4, &b.v4}, {b.local6, &b.v6}} {
		if !f.local.IsValid() {
			continue
		}
		s, err := b.listen(netip.AddrPortFrom(f.local, port))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if port == 0 { // as the first family got it
			port = s.port()
		}
		f.to.Store(s)
		fns = append(fns, s.receive)
	}
	if len(fns) == 0 {
		return nil, 0, errors.Join(append(faults, errNoAddress)...)
	}
	if len(faults) > 0 {
		b.closeSockets()
		return nil, 0, errors.Join(faults...)
	}
	b.open = true
	return fns, port, nil
}

// listen opens a socket. mu is held.
func (b *bind) listen(local netip.AddrPort) (*socket, error) {
	udp, err := b.opens(local, b.mark)
	if err != nil {
		return nil, err
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	s := &socket{conn: udp, batch: ipv4.NewPacketConn(udp), in: newIncoming()}
	if err := raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.segments.Store(err == nil)
	}); err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	return s, nil
}

// opensIn opens sockets in the namespace that inside enters.
func opensIn(inside Inside) opener {
	return func(local netip.AddrPort, mark uint32) (*net.UDPConn, error) {
		network := "udp4"
		if local.Addr().Is6() {
			network = "udp6"
		}
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = setUp(int(fd), network, mark) }), err)
		}}
		var pc net.PacketConn
		err := inside(func() (err error) {
			pc, err = lc.ListenPacket(context.Background(), network, local.String())
			return err
		})
		if err != nil {
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w: another program has UDP port %d, as a WireGuard device, flanneld or another weftd would: stop it, or name another ListenPort", err, local.Port())
			}
			return nil, err
		}
		return pc.(*net.UDPConn), nil // which ListenPacket returns for udp4 and udp6
	}
}

// bufferSize is what the sockets ask the kernel for, in bytes, each way: what arrives while the device is busy waits there.
const bufferSize = 7 << 20

// setUp sets a socket's options.
func setUp(fd int, network string, mark uint32) (err error) {
	for _, o := range [][2]int{{unix.SO_RCVBUF, unix.SO_RCVBUFFORCE}, {unix.SO_SNDBUF, unix.SO_SNDBUFFORCE}} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], bufferSize) // as much as the host allows,
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[1], bufferSize) // and with CAP_NET_ADMIN all of it
	}
	if network == "udp6" {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		// As the kernel's WireGuard: a datagram that is too large for a link on the way is fragmented.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
	} else {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	}
	if mark != 0 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)))
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) // from Linux 5.0 on; without, they come one by one
	return err
}

// Close implements conn.Bind.
func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = false
	return b.closeSockets()
}

func (b *bind) closeSockets() error {
	var errs []error
	for _, p := range []*atomic.Pointer[socket]{&b.v4, &b.v6} {
		if s := p.Swap(nil); s != nil {
			errs = append(errs, s.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// SetMark implements conn.Bind.
func (b *bind) SetMark(mark uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mark = mark
	var errs []error
	for _, p := range []*atomic.Pointer[socket]{&b.v4, &b.v6} {
		s := p.Load()
		if s == nil {
			continue
		}
		raw, err := s.conn.SyscallConn()
		if err == nil {
			err = errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) }), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// BatchSize implements conn.Bind.
func (*bind) BatchSize() int { return conn.IdealBatchSize }

// ParseEndpoint implements conn.Bind.
func (*bind) ParseEndpoint(text string) (conn.Endpoint, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, err
	}
	return newEndpoint(a), nil
}

// endpoint is where a peer is. The source is the socket's address, so that there is nothing to keep of it. It is immutable.
type endpoint struct {
	netip.AddrPort
	udp net.UDPAddr // the same, for the calls that take it
}

func newEndpoint(a netip.AddrPort) *endpoint {
	a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	return &endpoint{a, net.UDPAddr{IP: a.Addr().AsSlice(), Port: int(a.Port()), Zone: a.Addr().Zone()}}
}

func (*endpoint) ClearSrc()             {}
func (*endpoint) SrcToString() string   { return "" }
func (*endpoint) SrcIP() netip.Addr     { return netip.Addr{} }
func (e *endpoint) DstToString() string { return e.String() }
func (e *endpoint) DstIP() netip.Addr   { return e.Addr() }
func (e *endpoint) DstToBytes() []byte {
	b, _ := e.MarshalBinary() // it never fails
	return b
}

// Send implements conn.Bind.
func (b *bind) Send(bufs [][]byte, to conn.Endpoint) error {
	e, ok := to.(*endpoint)
	if !ok {
		return conn.ErrWrongEndpointType
	}
	s := b.v4.Load()
	if e.Addr().Is6() {
		s = b.v6.Load()
	}
	if s == nil {
		return unix.EAFNOSUPPORT
	}
	r := b.runs.Get().(*run)
	defer b.runs.Put(r)
	return s.send(r, bufs, e)
}

// socket is one family's.
type socket struct {
	conn  *net.UDPConn
	batch *ipv4.PacketConn // which for both families is only sendmmsg and recvmmsg
	// segments says that runs of datagrams leave in one piece. It is turned off for good where the kernel refuses that.
	segments atomic.Bool
	in       *incoming // of the one goroutine that receives
}

func (s *socket) port() uint16 { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// send sends all of bufs. What one datagram's error was does not keep the others back.
func (s *socket) send(r *run, bufs [][]byte, e *endpoint) error {
	defer r.clear()
	if s.segments.Load() {
		err := s.write(r.gather(bufs, e))
		if err == nil || !refusesRuns(err) {
			return err
		}
		if errors.Is(err, unix.EIO) { // the link cannot compute checksums, which runs ask of it
			s.segments.Store(false)
		}
		r.clear()
	}
	return s.write(r.single(bufs, e))
}

// refusesRuns reports whether an error is about a run as such: its link has no checksums, or a segment is larger than its MTU.
func refusesRuns(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMSGSIZE)
}

// write writes messages, in as few calls as the kernel allows.
func (s *socket) write(ms []ipv4.Message) error {
	var first error
	for len(ms) > 0 {
		n, err := s.batch.WriteBatch(ms, 0)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) || refusesRuns(err) {
				return err
			}
			if first == nil {
				first = err
			}
			n = 1 // the first of what is left is the one that failed
		}
		ms = ms[min(max(n, 1), len(ms)):]
	}
	return first
}

package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// socketBuffer is the requested size of a buffer in each direction, in bytes. The kernel charges a datagram
// about twice its length, so the buffer holds some 2,500 full-size ones, or 25 ms at 1 Gb/s. That exceeds the
// time that the scheduler keeps a worker off a busy CPU. The size may exceed rmem_max where CAP_NET_ADMIN
// permits.
const socketBuffer = 7 << 20

// UDPOptions describes the port of the underlay.
type UDPOptions struct {
	// Local is the outer address and port. Datagrams are sent from it, and only datagrams to it are received.
	Local netip.AddrPort
	// Device, if not empty, is the link that the socket is bound to.
	Device string
	// Format is the wire format. The zero Format is that of ip. Only ListenOffload and OpenRaw use it.
	Format encap.Format
	// Queues is the number of workers that receive in parallel; 0 means 1. Each gets all datagrams from one
	// source address and port.
	//
	// Lanes, a power of two, is the number of source ports for flows to a weft node. 0 and 1 mean only the
	// tunnel's port. The kernel chooses the other ports, on Local's address. Their sockets receive only ICMP
	// errors. Only ListenOffload and OpenRaw use Queues and Lanes.
	Queues, Lanes int
	// Off switches offloads off. Logger logs when one is lost, and nil discards. Only ListenOffload and OpenRaw
	// use them.
	Off    OffloadSet
	Logger *slog.Logger
	// From, if not nil, is the port of an earlier engine. The new port takes over its sockets and the packets in
	// them. On error the descriptors are closed. The error wraps ErrUnfit if the port is not the requested one.
	From *Kept
}

// logger returns Logger, or a logger that discards.
func (o *UDPOptions) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}

// UDPSocket is the underlay port of path portable, a UDP socket. It is safe for concurrent use.
type UDPSocket struct {
	fd          int
	local       netip.AddrPort
	dropsBefore uint32 // the kernel's drop count when this port took over the socket
	errors      errorQueue
	batch       batchConn // for path portable
}

// ListenUDP opens the UDP socket in the current network namespace. The error wraps unix.EADDRINUSE if another
// process has the port, and unix.EADDRNOTAVAIL if the address is not one of this host.
func ListenUDP(o UDPOptions) (*UDPSocket, error) {
	if o.From != nil {
		return keptUDP(o)
	}
	return listenUDP(o, nil)
}

// listenUDP opens a UDP socket. prepare, if not nil, is called before the socket is bound.
func listenUDP(o UDPOptions, prepare func(fd int) error) (*UDPSocket, error) {
	family := unix.AF_INET
	if o.Local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("udp socket: %w", err)
	}
	if o.Device != "" {
		if err := unix.BindToDevice(fd, o.Device); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("bind udp socket to %s: %w", o.Device, err)
		}
	}
	if prepare != nil {
		if err := prepare(fd); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("udp socket: %w", err)
		}
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(o.Local.Addr().AsSlice()[:4]),
		Port: int(o.Local.Port())}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		sa = &unix.SockaddrInet6{Addr: o.Local.Addr().As16(), Port: int(o.Local.Port())}
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind udp %v: %w", o.Local, err)
	}
	return UDPFromFD(fd)
}

// UDPFromFD makes a port from a bound UDP socket that was opened elsewhere. It owns fd, also on error.
func UDPFromFD(fd int) (*UDPSocket, error) {
	s := &UDPSocket{fd: fd}
	if err := s.setUp(); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("udp socket %d: %w", fd, err)
	}
	return s, nil
}

func (s *UDPSocket) setUp() error {
	if err := unix.SetNonblock(s.fd, true); err != nil {
		return err
	}
	local, err := localOf(s.fd)
	if err != nil {
		return err
	}
	s.local = local
	if conn := (unpolled{fd: descriptor(s.fd), local: local}); local.Addr().Is4() {
		s.batch = ipv4.NewPacketConn(conn)
	} else {
		s.batch = ipv6.NewPacketConn(conn)
	}
	level, recvTOS, discover, probe := unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_MTU_DISCOVER,
		unix.IP_PMTUDISC_PROBE
	if local.Addr().Is6() {
		level, recvTOS, discover, probe = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_MTU_DISCOVER,
			unix.IPV6_PMTUDISC_PROBE
	}
	return errors.Join(
		unix.SetsockoptInt(s.fd, level, recvTOS, 1), // ECN field of each datagram (RFC 6040)
		// DF is set, and the kernel ignores its cached path MTU. A forged packet-too-big message thus cannot make
		// it reject datagrams. The engine reads such messages from the error queue and checks them itself.
		unix.SetsockoptInt(s.fd, level, discover, probe),
		s.setErrorQueue(1),
		force(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF),
		force(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF),
	)
}

// force sets a buffer's size beyond the system's limit, or up to the limit without privilege.
func force(fd, forced, plain int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, socketBuffer) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, socketBuffer)
}

// LocalAddr implements Underlay.
func (s *UDPSocket) LocalAddr() netip.AddrPort { return s.local }

// Queues implements Port.
func (s *UDPSocket) Queues() []Queue { return []Queue{FDQueue{s.fd, AnyWorker, s.ReadBatch, s}} }

// Close implements Port.
func (s *UDPSocket) Close() error {
	return unix.Close(s.fd)
}

// Overflow returns the number of datagrams that the kernel dropped at the socket (sk_drops).
func (s *UDPSocket) Overflow() uint64 {
	info, ok := memInfo(s.fd)
	if !ok {
		return 0
	}
	return uint64(info[memDrops] - s.dropsBefore)
}

// readControl sets p.OuterECN, and returns the segment size of a UDP_GRO read, or 0.
func readControl(p *Packet, b []byte) (segment int) {
	for {
		m, rest, ok := nextControl(b)
		if !ok {
			return segment
		}
		switch {
		case m.level == unix.IPPROTO_IP && m.kind == unix.IP_TOS && len(m.data) >= 1:
			p.OuterECN = encap.ECN(m.data[0] & 3)
		case m.level == unix.IPPROTO_IPV6 && m.kind == unix.IPV6_TCLASS && len(m.data) >= 4:
			p.OuterECN = encap.ECN(binary.NativeEndian.Uint32(m.data) & 3)
		case m.level == unix.SOL_UDP && m.kind == unix.UDP_GRO && len(m.data) >= 4:
			segment = int(int32(binary.NativeEndian.Uint32(m.data)))
		}
		b = rest
	}
}

// address makes h the header of a send of n datagrams, gathered from v. All have size bytes, except that the
// last may be shorter.
func (s *UDPSocket) address(m *sendRun, h *messageHeader, v []unix.Iovec, n, size int) {
	m.fd, m.used = s.fd, 0
	m.putECN(m.first)
	if n > 1 {
		m.put(unix.SOL_UDP, unix.UDP_SEGMENT, 2, size)
	}
	h.gather(v)
	h.Name, h.Namelen = &m.name[0], m.name.set(m.first.Outer)
	h.Control = &m.ctl[0]
	h.SetControllen(m.used)
}

// putECN adds the outer ECN field of p.
func (c *sendControl) putECN(p *Packet) {
	switch {
	case p.OuterECN == encap.NotECT:
	case p.Outer.Addr().Is6():
		c.put(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4, int(p.OuterECN))
	default:
		c.put(unix.IPPROTO_IP, unix.IP_TOS, 4, int(p.OuterECN))
	}
}

// sendTries counts the tries of one send. A call may return the error of an earlier datagram, from an ICMP
// message. Reading the error queue meanwhile puts the next such error on the socket, so one repetition may
// not suffice.
type sendTries struct {
	last            unix.Errno
	tries, refusals int
}

// shouldRetry reports whether to repeat a send that returned errno.
func (t *sendTries) shouldRetry(r *Ring, fd int, errno unix.Errno) bool {
	last := t.last
	t.last = errno
	switch {
	case errno == unix.ECONNREFUSED || errno == unix.ENOPROTOOPT:
		// port or protocol unreachable: always an earlier datagram's
		t.refusals++
	case errno == unix.EAGAIN:
		t.tries++
		if !r.io.waitWritable(fd) {
			return false
		}
	case errno == unix.EMSGSIZE && last == errno: // the datagram's own: the first try cleared any earlier error
		return false
	case errno == unix.EINTR || isQueuedError(errno):
		t.tries++
	default:
		return false
	}
	return t.tries < 4 && t.refusals < 64
}

// socketName is a struct sockaddr_in or sockaddr_in6.
type socketName [unix.SizeofSockaddrInet6]byte

// set sets the name to an address, and returns its length.
func (n *socketName) set(to netip.AddrPort) uint32 {
	if to.Addr().Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		sa.Family = unix.AF_INET
		binary.BigEndian.PutUint16(n[2:], to.Port())
		sa.Addr = to.Addr().As4()
		return unix.SizeofSockaddrInet4
	}
	sa := (*unix.RawSockaddrInet6)(unsafe.Pointer(n))
	*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.Addr().As16()}
	binary.BigEndian.PutUint16(n[2:], to.Port())
	return unix.SizeofSockaddrInet6
}

// addr returns the address of the name.
func (n *socketName) addr() netip.AddrPort {
	port := binary.BigEndian.Uint16(n[2:])
	switch binary.NativeEndian.Uint16(n[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(n[4:8])), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(n[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}

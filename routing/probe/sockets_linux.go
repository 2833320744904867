package probe

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// socket sets DF on what leaves by it. It says what ICMP answers, and by which device a packet came.
type socket struct {
	conn net.PacketConn
	raw  syscall.RawConn
	six  bool
}

// open opens a socket at an address, which may be about to come; the zero AddrPort for any.
func open(six bool, kind, protocol int, at netip.AddrPort) (*socket, error) {
	family, options := unix.AF_INET, [][3]int{
		{unix.IPPROTO_IP, unix.IP_FREEBIND, 1},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		{unix.IPPROTO_IP, unix.IP_PKTINFO, 1},
		{unix.IPPROTO_IP, unix.IP_RECVERR, 1},
	}
	if six {
		family, options = unix.AF_INET6, [][3]int{
			{unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
		}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "probe")
	defer func() { _ = f.Close() }() // conn has its own
	for _, o := range options {
		err = errors.Join(err, os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, o[0], o[1], o[2])))
	}
	if at.IsValid() {
		err = errors.Join(err, os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at.Addr(), at.Port()))))
	}
	if err != nil {
		return nil, err
	}
	conn, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	return &socket{conn, raw, six}, err
}

// Close closes the socket, which ends Read. Nothing was written that it could lose.
func (s *socket) Close() { _ = s.conn.Close() }

// send sends a packet, or fails: it does not wait.
func (s *socket) send(b, oob []byte, to unix.Sockaddr) error {
	var err error
	if closed := s.raw.Control(func(fd uintptr) {
		_, err = unix.SendmsgN(int(fd), b, oob, to, unix.MSG_DONTWAIT)
	}); closed != nil {
		return nil // it ends
	}
	return err
}

// loop reads until the socket is closed, and hands on what ICMP says of what was sent.
func (s *socket) loop(read func() error, failed func(SendError)) {
	for {
		err := read()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil && !s.drain(failed):
			time.Sleep(time.Second) // an error that stays must not occupy a processor
		}
	}
}

// SendError is what ICMP, or this host's kernel, said of something that was sent to an address. MTU comes
// with EMSGSIZE.
type SendError struct {
	To    netip.Addr
	Errno unix.Errno
	MTU   int
}

// drain reads the errors of what was sent, and reports whether there were any.
func (s *socket) drain(failed func(SendError)) (some bool) {
	var faults []SendError
	_ = s.raw.Control(func(fd uintptr) { // a closed socket has none
		b, oob := make([]byte, 64), make([]byte, 512)
		for range 100 {
			_, m, _, name, err := unix.Recvmsg(int(fd), b, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			some = true
			messages, _ := unix.ParseSocketControlMessage(oob[:m]) // without any it says nothing
			for _, c := range messages {
				isErr := c.Header.Level == unix.IPPROTO_IP && c.Header.Type == unix.IP_RECVERR ||
					c.Header.Level == unix.IPPROTO_IPV6 && c.Header.Type == unix.IPV6_RECVERR
				if to := addrOf(name); isErr && to.IsValid() && len(c.Data) >= 12 {
					faults = append(faults, SendError{to, unix.Errno(binary.NativeEndian.Uint32(c.Data)),
						int(binary.NativeEndian.Uint32(c.Data[8:]))})
				}
			}
		}
	})
	for _, f := range faults {
		failed(f)
	}
	return some
}

func addrOf(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
}

// udpSocket is one on which questions are asked and answered.
type udpSocket struct{ *socket }

func listenUDP(at netip.AddrPort) (udpSocket, error) {
	s, err := open(at.Addr().Is6(), unix.SOCK_DGRAM, unix.IPPROTO_UDP, at)
	return udpSocket{s}, err
}

// send sends a datagram, or fails: it does not wait.
func (s udpSocket) send(to netip.AddrPort, b []byte) error {
	err := s.socket.send(b, nil, sockaddr(to.Addr(), to.Port()))
	if err == nil || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EAGAIN) {
		return err
	}
	// the error may have been that of an earlier datagram, to another peer
	return s.socket.send(b, nil, sockaddr(to.Addr(), to.Port()))
}

// read hands on what arrives, and what ICMP says of what was sent, until the socket is closed.
func (s udpSocket) read(arrived func(from netip.AddrPort, device int, b []byte), failed func(SendError)) {
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	s.loop(func() error {
		n, m, _, from, err := s.conn.(*net.UDPConn).ReadMsgUDPAddrPort(b, oob)
		if err == nil {
			arrived(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), s.cameBy(oob[:m]), b[:n])
		}
		return err
	}, failed)
}

// cameBy is the index of the device by which a datagram came; 0 if its control messages do not say.
func (s udpSocket) cameBy(oob []byte) int {
	if s.six {
		var m ipv6.ControlMessage
		_ = m.Parse(oob) // then it says nothing
		return m.IfIndex
	}
	var m ipv4.ControlMessage
	_ = m.Parse(oob)
	return m.IfIndex
}

// EchoSocket sends ICMP echo requests of one family.
type EchoSocket struct{ *socket }

// ListenEcho opens a raw socket that only gets echo replies, or else one of those for echo requests alone,
// which some kernels give to everybody.
func ListenEcho(six bool) (EchoSocket, error) {
	protocol := unix.IPPROTO_ICMP
	if six {
		protocol = unix.IPPROTO_ICMPV6
	}
	s, err := open(six, unix.SOCK_RAW, protocol, netip.AddrPort{})
	if errors.Is(err, unix.EPERM) {
		if s, other := open(six, unix.SOCK_DGRAM, protocol, netip.AddrPort{}); other == nil {
			return EchoSocket{s}, nil
		}
	}
	if err != nil {
		return EchoSocket{}, err
	}
	if six { // without a filter it gets more than it needs
		var f ipv6.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv6.ICMPTypeEchoReply)
		_ = ipv6.NewPacketConn(s.conn).SetICMPFilter(&f)
	} else {
		var f ipv4.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv4.ICMPTypeEchoReply)
		_ = ipv4.NewPacketConn(s.conn).SetICMPFilter(&f)
	}
	return EchoSocket{s}, nil
}

// tag follows the nonce in what our echo requests carry.
const tag = "weftecho"

// Send sends an echo request from that address, the zero Addr for the one that the kernel chooses. Size is
// that of the packet with its IP header, in bytes, at least what the nonce needs. It does not wait.
func (s EchoSocket) Send(from, to netip.Addr, nonce uint64, size int) error {
	m, headers := icmp.Message{Type: ipv4.ICMPTypeEcho}, 20+8
	if s.six {
		m.Type, headers = ipv6.ICMPTypeEchoRequest, 40+8 // the kernel fills in the checksum
	}
	data := append(binary.BigEndian.AppendUint64(nil, nonce), tag...)
	data = append(data, make([]byte, max(0, size-headers-len(data)))...)
	m.Body = &icmp.Echo{ID: int(uint16(nonce)), Seq: 1, Data: data}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	var source []byte
	if from.Is4() {
		source = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: from.As4()})
	} else if from.Is6() {
		source = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: from.As16()})
	}
	return s.send(b, source, sockaddr(to, 0))
}

// Read hands on the nonces of echo replies, and what ICMP says of requests, until the socket is closed.
func (s EchoSocket) Read(echoed func(from netip.Addr, nonce uint64), failed func(SendError)) {
	b := make([]byte, 64<<10)
	s.loop(func() error {
		n, name, err := s.conn.ReadFrom(b)
		if err != nil {
			return err
		}
		if nonce, ok := parseReply(b[:n], s.six); ok {
			if from := addrOfNet(name); from.IsValid() {
				echoed(from, nonce)
			}
		}
		return nil
	}, failed)
}

// parseReply returns the nonce of an echo reply to a request of ours.
func parseReply(b []byte, six bool) (nonce uint64, ok bool) {
	var reply icmp.Type = ipv4.ICMPTypeEchoReply
	protocol := ipv4.ICMPTypeEchoReply.Protocol()
	if six {
		reply, protocol = ipv6.ICMPTypeEchoReply, ipv6.ICMPTypeEchoReply.Protocol()
	}
	m, err := icmp.ParseMessage(protocol, b)
	if err != nil || m.Type != reply || m.Code != 0 {
		return 0, false
	}
	e, ok := m.Body.(*icmp.Echo)
	if !ok || len(e.Data) < 8+len(tag) || string(e.Data[8:8+len(tag)]) != tag {
		return 0, false
	}
	return binary.BigEndian.Uint64(e.Data), true
}

func addrOfNet(a net.Addr) netip.Addr {
	var ip net.IP
	switch a := a.(type) {
	case *net.IPAddr:
		ip = a.IP
	case *net.UDPAddr:
		ip = a.IP
	}
	out, _ := netip.AddrFromSlice(ip)
	return out.Unmap()
}

// deviceNames knows the names of devices by index.
type deviceNames struct {
	names map[int]string
	read  time.Time
}

// have reports whether the device with that index has one of names. The devices are listed once a second at
// the most, since pods send too, whose datagrams come by none of those that are wanted.
func (d *deviceNames) have(index int, names []string, do func(func() error) error) bool {
	if !slices.Contains(names, d.names[index]) && time.Since(d.read) > time.Second {
		d.read = time.Now()
		var all []net.Interface
		if err := do(func() (err error) { all, err = net.Interfaces(); return err }); err != nil {
			return false
		}
		d.names = make(map[int]string, len(all))
		for _, i := range all {
			d.names[i.Index] = i.Name
		}
	}
	return slices.Contains(names, d.names[index])
}

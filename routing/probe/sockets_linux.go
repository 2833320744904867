package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// udpSocket is one on which questions are asked and answered. DF is set on what leaves by it, and it says by
// which device a datagram came.
type udpSocket struct {
	conn *net.UDPConn
	raw  syscall.RawConn
}

func listenUDP(at netip.AddrPort) (*udpSocket, error) {
	network, options := "udp4", []option{
		{unix.IPPROTO_IP, unix.IP_FREEBIND, 1}, // the address may be about to come
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		{unix.IPPROTO_IP, unix.IP_PKTINFO, 1},
		{unix.IPPROTO_IP, unix.IP_RECVERR, 1},
	}
	if at.Addr().Is6() {
		network, options = "udp6", []option{
			{unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
		}
	}
	conn, raw, err := listen(network, at.String(), options)
	if err != nil {
		return nil, err
	}
	return &udpSocket{conn.(*net.UDPConn), raw}, nil
}

type option struct{ level, name, value int }

func listen(network, address string, options []option) (net.PacketConn, syscall.RawConn, error) {
	l := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var errs []error
		err := raw.Control(func(fd uintptr) {
			for _, o := range options {
				errs = append(errs, unix.SetsockoptInt(int(fd), o.level, o.name, o.value))
			}
		})
		return errors.Join(append(errs, err)...)
	}}
	conn, err := l.ListenPacket(context.Background(), network, address)
	if err != nil {
		return nil, nil, err
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = conn.Close() // nothing was written
		return nil, nil, err
	}
	return conn, raw, nil
}

func (s *udpSocket) close() { _ = s.conn.Close() } // nothing was written that a close could lose

// send sends a datagram, or fails: it does not wait.
func (s *udpSocket) send(to netip.AddrPort, b []byte) error {
	err := sendTo(s.raw, b, nil, sockaddr(to.Addr(), to.Port()))
	if err == nil || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EAGAIN) {
		return err
	}
	// the error may have been that of an earlier datagram, to another peer
	return sendTo(s.raw, b, nil, sockaddr(to.Addr(), to.Port()))
}

// read hands on what arrives, and what ICMP says of what was sent, until the socket is closed.
func (s *udpSocket) read(arrived func(from netip.AddrPort, device int, b []byte), failed func(icmpError)) {
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		n, m, _, from, err := s.conn.ReadMsgUDPAddrPort(b, oob)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !drain(s.raw, failed) {
				time.Sleep(time.Second) // an error that stays must not occupy a processor
			}
		default:
			arrived(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), cameBy(oob[:m]), b[:n])
		}
	}
}

// icmpError is what ICMP, or this host's kernel, said of something that was sent to an address. MTU comes
// with EMSGSIZE.
type icmpError struct {
	to    netip.Addr
	errno unix.Errno
	mtu   int
}

// drain reads the errors of what was sent, and reports whether there were any.
func drain(raw syscall.RawConn, failed func(icmpError)) (some bool) {
	var faults []icmpError
	_ = raw.Control(func(fd uintptr) { // a closed socket has none
		b, oob := make([]byte, 64), make([]byte, 512)
		for range 100 {
			_, m, _, name, err := unix.Recvmsg(int(fd), b, oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			some = true
			messages, err := unix.ParseSocketControlMessage(oob[:m])
			if err != nil {
				continue
			}
			for _, c := range messages {
				isErr := c.Header.Level == unix.IPPROTO_IP && c.Header.Type == unix.IP_RECVERR ||
					c.Header.Level == unix.IPPROTO_IPV6 && c.Header.Type == unix.IPV6_RECVERR
				if to := addrOf(name); isErr && to.IsValid() && len(c.Data) >= 12 {
					faults = append(faults, icmpError{to, unix.Errno(binary.NativeEndian.Uint32(c.Data)),
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

// cameBy is the index of the device by which a datagram came; 0 if its control messages do not say.
func cameBy(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO &&
			len(m.Data) >= unix.SizeofInet4Pktinfo:
			return int(binary.NativeEndian.Uint32(m.Data))
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO &&
			len(m.Data) >= unix.SizeofInet6Pktinfo:
			return int(binary.NativeEndian.Uint32(m.Data[16:]))
		}
	}
	return 0
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
}

func sendTo(raw syscall.RawConn, b, oob []byte, to unix.Sockaddr) error {
	var err error
	if closed := raw.Control(func(fd uintptr) {
		_, err = unix.SendmsgN(int(fd), b, oob, to, unix.MSG_DONTWAIT)
	}); closed != nil {
		return nil // it ends
	}
	return err
}

// icmpSocket sends echo requests of one family.
type icmpSocket struct {
	conn net.PacketConn
	raw  syscall.RawConn
	six  bool
}

// listenICMP opens a raw socket that only gets echo replies, or else one of those for echo requests alone,
// which some kernels give to everybody.
func listenICMP(six bool) (*icmpSocket, error) {
	const solRaw, icmpFilter = 255, 1 // SOL_RAW, ICMP_FILTER
	network, any, options := "ip4:icmp", "0.0.0.0",
		[]option{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
			{unix.IPPROTO_IP, unix.IP_RECVERR, 1}}
	if six {
		network, any, options = "ip6:ipv6-icmp", "::",
			[]option{{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
				{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}}
	}
	conn, raw, err := listen(network, any, options)
	if err == nil {
		s := &icmpSocket{conn, raw, six}
		_ = raw.Control(func(fd uintptr) { // without a filter it gets more than it needs
			if six {
				var f unix.ICMPv6Filter
				for i := range f.Data {
					f.Data[i] = ^uint32(0)
				}
				f.Data[echoReply6>>5] &^= 1 << (echoReply6 & 31)
				_ = unix.SetsockoptICMPv6Filter(int(fd), unix.IPPROTO_ICMPV6, 1, &f)
			} else {
				_ = unix.SetsockoptInt(int(fd), solRaw, icmpFilter, ^(1 << echoReply4))
			}
		})
		return s, nil
	}
	if !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	s, other := listenPing(six)
	if other != nil {
		return nil, err
	}
	return s, nil
}

// listenPing opens a socket for echo requests.
func listenPing(six bool) (*icmpSocket, error) {
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if six {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "ping")
	conn, err := net.FilePacketConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &icmpSocket{conn, raw, six}, nil
}

func (s *icmpSocket) close() { _ = s.conn.Close() }

// The types of ICMP messages (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// tag begins what our echo requests carry, before the nonce.
const tag = "weftecho"

// send sends an echo request from that address, the zero Addr for the one that the kernel chooses. It does
// not wait.
func (s *icmpSocket) send(from netip.Addr, f Echo) error {
	header := 20
	b := []byte{echoRequest4, 0, 0, 0}
	if s.six {
		b[0], header = echoRequest6, 40 // the kernel fills in the checksum
	}
	b = binary.BigEndian.AppendUint64(append(b, byte(f.Nonce>>8), byte(f.Nonce), 0, 1), f.Nonce)
	b = append(b, tag...)
	if pad := f.Size - header - len(b); pad > 0 {
		b = append(b, make([]byte, pad)...)
	}
	if !s.six {
		binary.BigEndian.PutUint16(b[2:], encap.Checksum(b))
	}
	return sendTo(s.raw, b, leaveFrom(from), sockaddr(f.To, 0))
}

// leaveFrom is the control message that sets the source address.
func leaveFrom(a netip.Addr) []byte {
	switch {
	case !a.IsValid():
		return nil
	case a.Is4():
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	default:
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
	}
}

// read hands on the nonces of echo replies until the socket is closed.
func (s *icmpSocket) read(echoed func(from netip.Addr, nonce uint64), failed func(icmpError)) {
	b := make([]byte, 64<<10)
	for {
		n, name, err := s.conn.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !drain(s.raw, failed) {
				time.Sleep(time.Second)
			}
			continue
		}
		if nonce, ok := parseReply(b[:n], s.six); ok {
			if from := addrOfNet(name); from.IsValid() {
				echoed(from, nonce)
			}
		}
	}
}

// parseReply returns the nonce of an echo reply to a request of ours.
func parseReply(b []byte, six bool) (nonce uint64, ok bool) {
	reply := byte(echoReply4)
	if six {
		reply = echoReply6
	}
	if len(b) < 16+len(tag) || b[0] != reply || b[1] != 0 || string(b[16:16+len(tag)]) != tag {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[8:]), true
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

// renamed is how long it takes at the most until a device is known by its new name, and unknown the same for
// a new device. Pods, whose datagrams come by none of those that are wanted, must not have the devices listed
// for each.
const renamed, unknown = 10 * time.Second, time.Second

// have reports whether the device with that index has one of names.
func (d *deviceNames) have(index int, names []string, do func(func() error) error) bool {
	name, ok := d.names[index]
	age := time.Since(d.read)
	if !ok && age > unknown || ok && !slices.Contains(names, name) && age > renamed {
		d.read = time.Now()
		var all []net.Interface
		if err := do(func() (err error) { all, err = net.Interfaces(); return err }); err != nil {
			return false
		}
		d.names = make(map[int]string, len(all))
		for _, i := range all {
			d.names[i.Index] = i.Name
		}
		name, ok = d.names[index]
	}
	return ok && slices.Contains(names, name)
}

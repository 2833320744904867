package ping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/pcapfilter"
	"weft/encap"
)

// needs says which right is missing.
const needs = "this process may not send ICMP: run it as root, with CAP_NET_RAW, or in a group of sysctl " +
	"net.ipv4.ping_group_range"

// The types of ICMP messages (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// askEcho asks by ICMP echo requests, on a socket for those alone, which many systems give to everybody, or
// else on a raw one.
func askEcho(ctx context.Context, q Question) Outcome {
	protocol, request, reply := unix.IPPROTO_ICMP, byte(echoRequest4), byte(echoReply4)
	if q.To.Is6() {
		protocol, request, reply = unix.IPPROTO_ICMPV6, echoRequest6, echoReply6
	}
	fd, err := open(q, unix.SOCK_DGRAM, protocol)
	raw := err != nil
	if raw {
		fd, err = open(q, unix.SOCK_RAW, protocol)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return Outcome{Cannot: needs}
	}
	if err != nil {
		return Outcome{Cannot: fmt.Sprintf("no socket for ICMP: %v", err)}
	}
	defer func() { _ = unix.Close(fd) }()
	secret := rand.Uint64()
	c := &conversation{q: q, out: fd, in: fd}
	c.datagram = func(i, size int) []byte {
		b := []byte{request, 0, 0, 0, byte(secret >> 8), byte(secret), byte((i + 1) >> 8), byte(i + 1)}
		b = binary.BigEndian.AppendUint64(b, secret)
		b = q.pad(binary.BigEndian.AppendUint32(b, uint32(i)), size)
		if request == echoRequest4 {
			binary.BigEndian.PutUint16(b[2:], encap.Checksum(b))
		}
		return b
	}
	c.index = func(b []byte) int {
		if raw && request == echoRequest4 { // with its IP header
			if len(b) < 20 {
				return -1
			}
			b = b[min(len(b), int(b[0]&15)*4):]
		}
		if len(b) < 20 || b[0] != reply || binary.BigEndian.Uint64(b[8:]) != secret {
			return -1
		}
		return int(binary.BigEndian.Uint32(b[16:]))
	}
	return c.run(ctx, 0)
}

// pad makes what stands behind the IP header so long that the packet has a size, unless it is longer.
func (q Question) pad(b []byte, size int) []byte {
	header := 20
	if q.To.Is6() {
		header = 40
	}
	return append(b, make([]byte, max(0, size-header-len(b)))...)
}

// open opens a socket. An error of a packet comes back with its sender, no packet is fragmented, and what
// this host's kernel has learnt of the path is not believed.
func open(q Question, kind, protocol int) (fd int, err error) {
	family := unix.AF_INET
	options := [][3]int{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		{unix.IPPROTO_IP, unix.IP_RECVERR, 1}}
	if q.To.Is6() {
		family = unix.AF_INET6
		options = [][3]int{{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}}
	}
	if fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol); err != nil {
		return -1, err
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	// large answers to a search for the MTU come at once
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
	return fd, nil
}

// point binds a socket to q.From and connects it to q.To. It returns what this host's kernel has against it,
// nil for nothing.
func point(fd int, q Question, port uint16) *diagnose.Said {
	var errno unix.Errno
	if q.From.IsValid() && errors.As(unix.Bind(fd, sockaddr(q.From, 0)), &errno) {
		s := local(errno)
		s.Text = fmt.Sprintf("this host does not have the address %v (%v)", q.From, errno)
		return s
	}
	if errors.As(unix.Connect(fd, sockaddr(q.To, port)), &errno) {
		return local(errno)
	}
	return nil
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
	}
	return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
}

// askPort sends datagrams to the overlay's port from one that nobody has. A data plane of weft answers a
// question about the size to the overlay's port of this host, where a packet socket sees it; to all others it
// is an empty datagram, which only ICMP has an answer to.
func askPort(ctx context.Context, q Question) Outcome {
	fd, err := open(q, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
	if err != nil {
		return Outcome{Cannot: fmt.Sprintf("no UDP socket: %v", err)}
	}
	defer func() { _ = unix.Close(fd) }()
	c := &conversation{q: q, out: fd, in: fd, datagram: func(int, int) []byte { return nil }}
	if q.Probe {
		in, err := answersSocket(q.Port)
		if err != nil {
			c.o.NoAnswers = "what its data plane answers cannot be heard without CAP_NET_RAW, only whether ICMP " +
				"refuses it: run this as root"
		} else {
			defer func() { _ = unix.Close(in) }()
			c.in = in
		}
		secret := rand.Uint64()
		c.datagram = func(i, size int) []byte {
			const header = 8 // of UDP
			return q.pad(encap.AppendProbe(nil, encap.Probe{Token: secret + uint64(i)}), size-header)
		}
		c.index = func(b []byte) int { return answerTo(b, q, secret) }
	}
	return c.run(ctx, q.Port)
}

// askProtocol sends packets of IP in IP with nothing in them that anybody would take, to which only ICMP has
// an answer.
func askProtocol(ctx context.Context, q Question) Outcome {
	fd, err := open(q, unix.SOCK_RAW, unix.IPPROTO_IPIP)
	if errors.Is(err, unix.EPERM) {
		return Outcome{Cannot: "a packet of IP protocol 4 takes CAP_NET_RAW: run this as root"}
	}
	if err != nil {
		return Outcome{Cannot: fmt.Sprintf("no raw socket: %v", err)}
	}
	defer func() { _ = unix.Close(fd) }()
	// what the overlay's nodes send it is not for us
	if err := attach(fd, bpf.RawInstruction{Op: unix.BPF_RET | unix.BPF_K}); err != nil {
		return Outcome{Cannot: fmt.Sprintf("raw socket: %v", err)}
	}
	// It is as long as a header, since the kernel answers nothing shorter. Its version is none.
	c := &conversation{q: q, out: fd, in: fd, datagram: func(int, int) []byte { return make([]byte, 20) }}
	return c.run(ctx, 0)
}

// longestAnswer is the length of an answer with the headers of IPv6 and UDP, in bytes.
const longestAnswer = 40 + 8 + encap.ProbeLen

// answersSocket opens a packet socket for the datagrams from that UDP port that are no longer than an answer:
// of all that a node carries the answers would be lost in the queue. It is for all protocols, since the rule
// by which path raw keeps datagrams from the host's own sockets drops them before those for one protocol see
// them.
func answersSocket(port uint16) (int, error) {
	// hears nothing before it has its filter
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	filter, err := pcapfilter.Compile(fmt.Sprintf("udp src port %d and less %d", port, longestAnswer))
	var program []bpf.RawInstruction
	if err == nil {
		program, err = filter.Program()
	}
	if err == nil {
		err = attach(fd, program...)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{
			Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))})
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// attach lets a socket hear only what a program takes.
func attach(fd int, program ...bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// answerTo says which question an IP packet answers, -1 for none.
func answerTo(b []byte, q Question, secret uint64) int {
	var src netip.Addr
	switch {
	case q.To.Is4() && len(b) >= 20 && b[0]>>4 == 4 && b[9] == unix.IPPROTO_UDP:
		src = netip.AddrFrom4([4]byte(b[12:16]))
		b = b[min(len(b), int(b[0]&15)*4):]
	case q.To.Is6() && len(b) >= 40 && b[0]>>4 == 6 && b[6] == unix.IPPROTO_UDP:
		src = netip.AddrFrom16([16]byte(b[8:24]))
		b = b[40:]
	default:
		return -1
	}
	if src != q.To || len(b) < 8 || binary.BigEndian.Uint16(b) != q.Port {
		return -1
	}
	p, err := encap.ParseProbe(b[8:])
	if err != nil || !p.Answer || p.Token-secret >= uint64(len(q.Sizes)) {
		return -1
	}
	return int(p.Token - secret)
}

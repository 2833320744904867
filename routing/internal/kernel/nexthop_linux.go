package kernel

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/nlattr"
)

// askBatch is how many routes are asked for in one message to the kernel. It answers before
// sendto(2) returns, and each answer takes some 5 KB of the receive buffer.
const askBatch = 24

// ErrNoAnswer is for an address about which the kernel did not answer.
var ErrNoAnswer = errors.New("the kernel did not answer")

// RoutesTo asks the kernel how it would send to each of dsts, in order: the tunnel's datagrams from local, or
// with the zero AddrPort whatever the host sends. Policy rules and all tables count, as for a datagram of the
// socket. It takes about 2 µs for each.
func (k *Kernel) RoutesTo(dsts []netip.Addr, local netip.AddrPort) ([]Answer, error) {
	answers := make([]Answer, len(dsts))
	for i := range answers {
		answers[i].Err = ErrNoAnswer
	}
	if len(dsts) == 0 {
		return answers, nil
	}
	err := k.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		limit := unix.NsecToTimeval(int64(time.Second))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return err
		}
		var request []byte
		reply := make([]byte, 32<<10)
		for first := 0; first < len(dsts); first += askBatch {
			last := min(first+askBatch, len(dsts))
			request = request[:0]
			for i, dst := range dsts[first:last] {
				request = AppendRouteRequest(request, uint32(first+i), dst, local)
			}
			if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				return err
			}
			for left := last - first; left > 0; {
				n, from, err := unix.Recvfrom(fd, reply, 0)
				switch {
				case errors.Is(err, unix.EINTR):
					continue
				case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
					left = 0 // what was lost stays unanswered, and is asked again with the next change
					continue
				case err != nil:
					return err
				}
				if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != nl.PidKernel {
					continue
				}
				messages, err := syscall.ParseNetlinkMessage(reply[:n])
				if err != nil {
					return err
				}
				left -= takeAnswers(answers, messages, first, last)
			}
		}
		return nil
	})
	return answers, Wrap("ask for routes", err)
}

// takeAnswers enters what messages say, and returns how many of them answer the requests from first to last.
// Others are late ones, of a batch before.
func takeAnswers(answers []Answer, messages []syscall.NetlinkMessage, first, last int) (n int) {
	for _, m := range messages {
		seq := int(m.Header.Seq)
		if seq < len(answers) {
			answers[seq] = ParseAnswer(m)
		}
		if seq >= first && seq < last {
			n++
		}
	}
	return n
}

// AppendRouteRequest appends an RTM_GETROUTE for dst, and for UDP datagrams from local and of the same port,
// if that is valid (rtnetlink(7); the protocol and ports are since Linux 4.17, older kernels skip them).
func AppendRouteRequest(b []byte, seq uint32, dst netip.Addr, local netip.AddrPort) []byte {
	start, family := len(b), byte(unix.AF_INET)
	if dst.Is6() {
		family = unix.AF_INET6
	}
	bits, from := byte(dst.BitLen()), byte(local.Addr().BitLen())
	b = binary.NativeEndian.AppendUint32(b, 0) // length, set below
	b = binary.NativeEndian.AppendUint16(b, unix.RTM_GETROUTE)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, bits, from, 0, 0, 0, 0, 0, 0, 0, 0, 0) // struct rtmsg
	attr := func(kind uint16, value ...byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, value...)
		b = append(b, make([]byte, -len(b)&3)...)
	}
	attr(unix.RTA_DST, dst.AsSlice()...)
	if local.IsValid() {
		port := binary.BigEndian.AppendUint16(nil, local.Port())
		attr(unix.RTA_SRC, local.Addr().AsSlice()...)
		attr(unix.RTA_IP_PROTO, unix.IPPROTO_UDP)
		attr(unix.RTA_SPORT, port...)
		attr(unix.RTA_DPORT, port...)
	}
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

// ParseAnswer reads the kernel's reply: a route, or an error number.
func ParseAnswer(m syscall.NetlinkMessage) Answer {
	b := m.Data
	switch {
	case m.Header.Type == unix.NLMSG_ERROR && len(b) >= 4:
		if errno := -int32(binary.NativeEndian.Uint32(b)); errno > 0 {
			return Answer{Err: unix.Errno(errno)}
		}
		return Answer{Err: ErrNoAnswer}
	case m.Header.Type != unix.RTM_NEWROUTE || len(b) < unix.SizeofRtMsg:
		return Answer{Err: ErrNoAnswer}
	}
	a, attrs := Answer{Kind: b[7]}, b[unix.SizeofRtMsg:]
	if v := nlattr.Find(attrs, unix.RTA_OIF); len(v) == 4 {
		a.Link = int(binary.NativeEndian.Uint32(v))
	}
	a.Source = fromIP(nlattr.Find(attrs, unix.RTA_PREFSRC))
	a.Gateway = fromIP(nlattr.Find(attrs, unix.RTA_GATEWAY))
	if v := nlattr.Find(attrs, unix.RTA_VIA); len(v) > 2 { // struct rtvia: an IPv4 route by an IPv6 neighbour
		a.Gateway = fromIP(v[2:])
	}
	a.Encap = nlattr.Find(attrs, unix.RTA_ENCAP_TYPE) != nil
	if v := nlattr.Find(nlattr.Find(attrs, unix.RTA_METRICS), unix.RTAX_MTU); len(v) == 4 && !expires(attrs) {
		a.MTU = int(binary.NativeEndian.Uint32(v))
	}
	return a
}

// expires reports whether the kernel learnt the route from a packet-too-big message, which
// anyone can forge; the data plane handles such messages itself.
func expires(attrs []byte) bool {
	v := nlattr.Find(attrs, unix.RTA_CACHEINFO) // struct rta_cacheinfo: rta_expires is the third
	return len(v) >= 12 && binary.NativeEndian.Uint32(v[8:]) != 0
}

// Neighbours lists the kernel's entries for the link, of both families.
func (k *Kernel) Neighbours(index int) ([]Neighbour, error) {
	var ns []Neighbour
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		l, err := k.listNeighs(family, index, 0)
		if err != nil {
			return nil, err
		}
		for i := range l {
			ns = append(ns, neighbourOf(&l[i]))
		}
	}
	return ns, nil
}

func neighbourOf(n *netlink.Neigh) Neighbour {
	out := Neighbour{Addr: fromIP(n.IP), State: uint16(n.State)}
	if len(n.HardwareAddr) == len(out.MAC) {
		out.MAC = encap.MAC(n.HardwareAddr)
	}
	return out
}

// ParseNeighbour reads an RTM_NEWNEIGH, or the same of RTM_DELNEIGH, about a link of that index.
func ParseNeighbour(b []byte, index int) (n Neighbour, ok bool) {
	if len(b) < unix.SizeofNdMsg || b[0] != unix.AF_INET && b[0] != unix.AF_INET6 || secondWord(b) != index {
		return n, false
	}
	l, err := netlink.NeighDeserialize(b)
	if err != nil {
		return n, false
	}
	n = neighbourOf(l)
	return n, n.Addr.IsValid()
}

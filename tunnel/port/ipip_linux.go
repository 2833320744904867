package port

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// IPIPSocket is the underlay port of format ipip: a raw socket of IP protocol 4. It receives all such packets
// to its address, and the kernel writes the outer IPv4 header of sent packets. It has no ports. One system
// call sends many packets. Nothing segments or coalesces packets, except that a virtual interface or the
// kernel's GRO may deliver a TCP superpacket. IPIPSocket is safe for concurrent use.
type IPIPSocket struct {
	*UDPSocket // descriptor, queue and errors work as for UDP
	runs       *runWriter
}

// ListenIPIP opens the port in the current network namespace. Only the address of o.Local is used, which must
// be IPv4. There is always one queue and one lane. The error wraps unix.EPERM without CAP_NET_RAW, and
// unix.EADDRNOTAVAIL if the address is not one of this host.
func ListenIPIP(o UDPOptions) (*IPIPSocket, error) {
	if !o.Local.Addr().Is4() {
		return nil, fmt.Errorf("ipip from %v: only IPv4 carries it", o.Local.Addr())
	}
	if o.From != nil {
		return keptIPIP(o)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_IPIP)
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("raw socket for ipip: %w: it takes CAP_NET_RAW", err)
	}
	if err != nil {
		return nil, fmt.Errorf("raw socket for ipip: %w", err)
	}
	if o.Device != "" {
		err = unix.BindToDevice(fd, o.Device)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: o.Local.Addr().As4()})
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("bind ipip to %v: %w", o.Local.Addr(), err)
	}
	u, err := UDPFromFD(fd)
	if err != nil {
		return nil, err
	}
	return newIPIP(u, o), nil
}

// newIPIP makes a port from a bound raw socket.
func newIPIP(u *UDPSocket, o UDPOptions) *IPIPSocket {
	u.local = netip.AddrPortFrom(u.local.Addr(), 0) // the kernel reports the protocol as the port
	s := &IPIPSocket{UDPSocket: u}
	s.runs = newRunWriter(s, o, "ipip "+u.local.Addr().String(), false)
	return s
}

// Queues implements Port.
func (s *IPIPSocket) Queues() []Queue {
	return []Queue{FDQueue{s.fd, AnyWorker, s.ReadBatch, s.UDPSocket}}
}

// ReadBatch reads one packet per recvmsg(2) until none is left. The outer header goes into the headroom, so
// that the inner packet starts at the same offset as in every other port.
func (s *IPIPSocket) ReadBatch(r *Ring) error {
	for {
		p := r.Slot()
		if p == nil {
			return nil
		}
		b := p.buf[p.off-encap.IPv4Len:]
		r.io.payload(b)
		n, errno := r.io.recvmsg(s.fd, unix.MSG_TRUNC)
		switch {
		case errno == 0:
			p.Outer = netip.AddrPortFrom(r.io.name.addr().Addr(), 0)
			p.Truncated = n > len(b)
			_ = readControl(p, r.io.control())
			// The kernel has checked the header. Options, if any, are before the inner packet.
			options := int(b[0]&0xf)*4 - encap.IPv4Len
			p.off += options
			r.Commit(max(0, min(n, len(b))-encap.IPv4Len-options))
		case errno == unix.EAGAIN:
			return nil
		case errno == unix.EINTR || isQueuedError(errno):
		default:
			return fmt.Errorf("receive ipip at %v: %w", s.local.Addr(), errno)
		}
	}
}

// WriteBatch implements Port. It segments superpackets, and sends all packets together by sendmmsg(2).
func (s *IPIPSocket) WriteBatch(r *Ring, ps []*Packet) { s.runs.writeRuns(r, ps) }

// whole implements wire: a raw socket cannot send superpackets.
func (s *IPIPSocket) whole(*runWriter, *Ring, *Packet) bool { return false }

// address implements wire.
func (s *IPIPSocket) address(_ *Ring, m *sendRun, h *messageHeader, v []unix.Iovec, n, size int) {
	s.UDPSocket.address(m, h, v[1:], n, size)
}

// LeavesPartial implements Super: no outer checksum protects the inner packet.
func (s *IPIPSocket) LeavesPartial(Recv) bool { return false }

// Offloads implements Super. There are none.
func (s *IPIPSocket) Offloads() []OffloadStats { return nil }

// aboutIPIP is Kept.About of kind KindIPIP.
type aboutIPIP struct {
	Local  netip.Addr `json:"local"`
	Device string     `json:"device,omitempty"`
}

// Keep implements KeepablePort.
func (s *IPIPSocket) Keep() (Kept, error) {
	device, err := boundTo(s.fd)
	if err != nil {
		return Kept{}, err
	}
	return keep(KindIPIP, aboutIPIP{s.local.Addr(), device}, []int{s.fd})
}

// keptIPIP is ListenIPIP from o.From.
func keptIPIP(o UDPOptions) (*IPIPSocket, error) {
	return adopt(o.From, func() (*IPIPSocket, error) {
		var about aboutIPIP
		if err := o.From.decode(KindIPIP, &about); err != nil {
			return nil, err
		}
		if len(o.From.FDs) != 1 {
			return nil, unfit("there are %d descriptors", len(o.From.FDs))
		}
		fd := o.From.FDs[0]
		local, err := checkBound(fd, unix.SOCK_RAW, o.Device)
		if err != nil {
			return nil, err
		}
		if local.Addr() != o.Local.Addr() || local.Addr() != about.Local {
			return nil, unfit("the socket is bound to %v, not to %v", local.Addr(), o.Local.Addr())
		}
		if proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil ||
			proto != unix.IPPROTO_IPIP {
			return nil, unfit("the socket has protocol %d (%v)", proto, err)
		}
		u, err := adoptSocket(fd)
		if err != nil {
			return nil, err
		}
		return newIPIP(u, o), nil
	})
}

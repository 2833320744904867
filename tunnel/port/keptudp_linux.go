package port

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// aboutUDP is Kept.About of kinds KindUDP and KindSockets.
type aboutUDP struct {
	Local  netip.AddrPort `json:"local"`
	Device string         `json:"device,omitempty"`
	// Queues and Lanes are the numbers requested. Group is the number of sockets that share the port; the other
	// sockets are the lanes'.
	Queues int `json:"queues,omitempty"`
	Lanes  int `json:"lanes,omitempty"`
	Group  int `json:"group,omitempty"`
}

// Keep implements KeepablePort.
func (s *UDPSocket) Keep() (Kept, error) {
	device, err := boundTo(s.fd)
	if err != nil {
		return Kept{}, err
	}
	return keep(KindUDP, aboutUDP{Local: s.local, Device: device, Group: 1}, []int{s.fd})
}

// Keep implements KeepablePort.
func (s *OffloadSocket) Keep() (Kept, error) {
	about, fds, err := s.sockets.keep()
	if err != nil {
		return Kept{}, err
	}
	return keep(KindSockets, about, fds)
}

// keep returns the description and the descriptors of s.
func (s *sockets) keep() (aboutUDP, []int, error) {
	device, err := boundTo(s.group[0].fd)
	about := aboutUDP{Local: s.local, Device: device, Queues: s.requested[0], Lanes: s.requested[1],
		Group: len(s.group)}
	var fds []int
	for _, u := range s.group {
		fds = append(fds, u.fd)
	}
	for _, u := range s.lanes {
		fds = append(fds, u.fd)
	}
	return about, fds, err
}

// boundTo returns the name of the link that a socket is bound to, or "".
func boundTo(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	if err != nil {
		return "", fmt.Errorf("SO_BINDTODEVICE: %w", err)
	}
	return strings.TrimRight(name, "\x00"), nil
}

// check checks that fds are the sockets that o describes.
func (about *aboutUDP) check(o UDPOptions, fds []int) error {
	switch {
	case about.Local != o.Local && (o.Local.Port() != 0 || about.Local.Addr() != o.Local.Addr()):
		return unfit("the socket is bound to %v, not to %v", about.Local, o.Local)
	case about.Group < 1 || about.Group > len(fds):
		return unfit("%d of %d sockets share the port", about.Group, len(fds))
	}
	for i, fd := range fds {
		local, err := checkBound(fd, unix.SOCK_DGRAM, o.Device)
		if err != nil {
			return err
		}
		if local.Addr() != about.Local.Addr() || i < about.Group && local != about.Local {
			return unfit("a socket is bound to %v", local)
		}
	}
	return nil
}

// checkBound checks that fd is a socket of that type in the current network namespace, bound to the link device.
// It returns the socket's address.
func checkBound(fd, kind int, device string) (netip.AddrPort, error) {
	if err := checkSocket(fd, kind); err != nil {
		return netip.AddrPort{}, err
	}
	if got, err := boundTo(fd); err != nil || got != device {
		return netip.AddrPort{}, unfit("a socket is bound to link %q, not to %q (%v)", got, device, err)
	}
	local, err := localOf(fd)
	if err != nil {
		return local, unfit("%v", err)
	}
	return local, nil
}

// checkSocket checks that fd is a socket of that type in the current network namespace.
func checkSocket(fd, kind int) error {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || got != kind {
		return unfit("a descriptor is no socket of type %d (type %d, %v)", kind, got, err)
	}
	if !inThisNamespace(fd, unix.SIOCGSKNS) {
		return unfit("a socket is in another network namespace")
	}
	return nil
}

// keptUDP is ListenUDP from o.From.
func keptUDP(o UDPOptions) (*UDPSocket, error) {
	return adopt(o.From, func() (*UDPSocket, error) {
		var about aboutUDP
		if err := o.From.decode(KindUDP, &about); err != nil {
			return nil, err
		}
		if len(o.From.FDs) != 1 {
			return nil, unfit("there are %d descriptors", len(o.From.FDs))
		}
		if err := about.check(o, o.From.FDs); err != nil {
			return nil, err
		}
		return adoptSocket(o.From.FDs[0])
	})
}

// adoptSocket makes a port from a kept socket. On error the caller still owns fd. Peers that the earlier process
// throttled are admitted, and drops that it counted are not counted again.
func adoptSocket(fd int) (*UDPSocket, error) {
	s := &UDPSocket{fd: fd}
	if err := s.setUp(); err != nil {
		return nil, unfit("%v", err)
	}
	if info, ok := memInfo(fd); ok {
		s.dropsBefore = info[memDrops]
	}
	return s, s.Throttle(nil)
}

// keptSockets is listenSockets from o.From, except for what depends on the wire format.
func keptSockets(o UDPOptions) (*sockets, error) {
	return adopt(o.From, func() (*sockets, error) {
		var about aboutUDP
		if err := o.From.decode(KindSockets, &about); err != nil {
			return nil, err
		}
		return adoptSockets(o, about, o.From.FDs)
	})
}

// adoptSockets makes sockets from fds. On error the caller still owns fds.
func adoptSockets(o UDPOptions, about aboutUDP, fds []int) (*sockets, error) {
	if want := requestedSockets(o); want != [2]int{about.Queues, about.Lanes} {
		return nil, unfit("it has %d queues and %d lanes, not %v", about.Queues, about.Lanes, want)
	}
	if err := about.check(o, fds); err != nil {
		return nil, err
	}
	s := &sockets{local: about.Local, log: o.logger(), requested: requestedSockets(o)}
	for i, fd := range fds {
		if i >= about.Group {
			u := &UDPSocket{fd: fd}
			if err := u.setUp(); err != nil {
				return nil, unfit("%v", err)
			}
			s.lanes = append(s.lanes, u)
			continue
		}
		u, err := adoptSocket(fd)
		if err != nil {
			return nil, err
		}
		s.group = append(s.group, u)
	}
	return s, nil
}

// requestedSockets returns the numbers of queues and lanes that o requests.
func requestedSockets(o UDPOptions) [2]int { return [2]int{max(1, o.Queues), max(1, o.Lanes)} }

// localOf returns the address of a bound socket.
func localOf(fd int) (netip.AddrPort, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("%T is no IP address", name)
}

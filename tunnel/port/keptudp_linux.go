package port

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// aboutUDP is Kept.About of UDP sockets.
type aboutUDP struct {
	Local  netip.AddrPort `json:"local"`
	Device string         `json:"device,omitempty"`
	// Queues and Lanes are how many were asked for, Group how many sockets share the port; the others are the
	// lanes'.
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

// keep is what is to be known of s, and its descriptors.
func (s *sockets) keep() (aboutUDP, []int, error) {
	device, err := boundTo(s.group[0].fd)
	about := aboutUDP{Local: s.local, Device: device, Queues: s.wanted[0], Lanes: s.wanted[1],
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

// boundTo is the link that a socket is bound to; "" if it is to none.
func boundTo(fd int) (string, error) {
	name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	if err != nil {
		return "", fmt.Errorf("SO_BINDTODEVICE: %w", err)
	}
	return strings.TrimRight(name, "\x00"), nil
}

// fit says whether fds are the sockets that o asks for.
func (about *aboutUDP) fit(o UDPOptions, fds []int) error {
	switch {
	case about.Local != o.Local && (o.Local.Port() != 0 || about.Local.Addr() != o.Local.Addr()):
		return unfit("the socket is bound to %v, and %v is wanted", about.Local, o.Local)
	case about.Group < 1 || about.Group > len(fds):
		return unfit("%d of %d descriptors are said to share the port", about.Group, len(fds))
	}
	for i, fd := range fds {
		if err := fitSocket(fd, unix.SOCK_DGRAM); err != nil {
			return err
		}
		local, err := localOf(fd)
		if err != nil {
			return unfit("%v", err)
		}
		if local.Addr() != about.Local.Addr() || i < about.Group && local != about.Local {
			return unfit("a socket is bound to %v", local)
		}
		if device, err := boundTo(fd); err != nil || device != o.Device {
			return unfit("a socket is bound to link %q, and %q is wanted (%v)", device, o.Device, err)
		}
	}
	return nil
}

// fitSocket says whether fd is a socket of that kind in the current network namespace.
func fitSocket(fd, kind int) error {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || got != kind {
		return unfit("a descriptor is no such socket (type %d, %v)", got, err)
	}
	if !hereNamespace(fd, unix.SIOCGSKNS) {
		return unfit("a socket is in another network namespace")
	}
	return nil
}

// keptUDP is ListenUDP for o.From.
func keptUDP(o UDPOptions) (*UDPSocket, error) {
	var about aboutUDP
	err := o.From.read(KindUDP, &about)
	if err == nil {
		err = about.fit(o, o.From.FDs)
	}
	if err == nil && len(o.From.FDs) != 1 {
		err = unfit("there are %d descriptors", len(o.From.FDs))
	}
	if err != nil {
		o.From.Close()
		return nil, fmt.Errorf("udp %v that was kept: %w", o.Local, err)
	}
	u, err := UDPFromFD(o.From.FDs[0])
	o.From.FDs = nil
	if err != nil {
		return nil, err
	}
	u.inherited()
	if err := u.Hold(nil); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// keptSockets is listenSockets for o.From, less what depends on the wire format.
func keptSockets(o UDPOptions) (*sockets, error) {
	var about aboutUDP
	err := o.From.read(KindSockets, &about)
	var s *sockets
	if err == nil {
		s, err = takeSockets(o, about, o.From.FDs)
	}
	if err != nil {
		o.From.Close()
		return nil, fmt.Errorf("udp %v that was kept: %w", o.Local, err)
	}
	o.From.FDs = nil
	// Peers that were held back are let in, since the process that throttled them is gone.
	if err := s.Hold(nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// takeSockets makes sockets of fds, which on error are the caller's still.
func takeSockets(o UDPOptions, about aboutUDP, fds []int) (*sockets, error) {
	if want := wantedSockets(o); want != [2]int{about.Queues, about.Lanes} {
		return nil, unfit("it was made for %d queues and %d lanes, and %v are wanted", about.Queues,
			about.Lanes, want)
	}
	if err := about.fit(o, fds); err != nil {
		return nil, err
	}
	s := &sockets{local: about.Local, log: o.logger(), wanted: wantedSockets(o)}
	for i, fd := range fds {
		u := &UDPSocket{fd: fd}
		if err := u.setUp(); err != nil {
			return nil, unfit("%v", err)
		}
		u.inherited()
		if i < about.Group {
			s.group = append(s.group, u)
		} else {
			s.lanes = append(s.lanes, u)
		}
	}
	return s, nil
}

// wantedSockets is how many queues and lanes o asks for.
func wantedSockets(o UDPOptions) [2]int { return [2]int{max(1, o.Queues), max(1, o.Lanes)} }

// inherited takes note that the socket has had another life, of which the losses were counted there.
func (s *UDPSocket) inherited() {
	if info, ok := memInfo(s.fd); ok {
		s.before = info[memDrops]
	}
}

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

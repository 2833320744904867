package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// Path portable uses two libraries. wireguard/tun's Device segments the kernel's superpackets. The batches of
// x/net move many datagrams in one system call. Both get descriptors that Go's poller does not know, because
// it would wake for every packet in addition to the worker.

// PortableTUN is the TUN port of path portable, with a Device for each queue. It is safe for concurrent use.
type PortableTUN struct {
	*TUN
	devices []tun.Device // of fds, in order
}

// portableTUN makes a Device from each of t's queues. It owns t, also on error.
func portableTUN(t *TUN) (*PortableTUN, error) {
	p := &PortableTUN{TUN: t}
	link, err := net.InterfaceByName(t.name)
	for i := 0; err == nil && i < len(t.fds); i++ {
		var d tun.Device
		if d, err = openDevice(t.fds[i], link.MTU); err == nil {
			p.devices = append(p.devices, d)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tun %s: %w", t.name, err), p.Close())
	}
	return p, nil
}

// openDevice makes a Device from a duplicate of fd. The file is blocking while it is wrapped, which keeps it
// out of Go's poller.
func openDevice(fd, mtu int) (tun.Device, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(dup, false)
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(dup), "/dev/net/tun")
	d, err := tun.CreateTUNFromFile(file, mtu)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	go func() {
		for range d.Events() { // Device blocks until its events are read; routing watches the link itself
		}
	}()
	return d, unix.SetNonblock(dup, true)
}

// Close closes the descriptors. The device stays if it is persistent.
func (t *PortableTUN) Close() error {
	err := t.TUN.Close()
	for _, d := range t.devices {
		err = errors.Join(err, d.Close())
	}
	t.devices = nil
	return err
}

// Queues implements Port.
func (t *PortableTUN) Queues() []Queue { return t.queuesOf(t.readFrom) }

// readFrom reads one packet or superpacket per read(2) of fd, until none is left.
func (t *PortableTUN) readFrom(fd int, r *Ring) error {
	a, d := r.portableArea(), t.devices[slices.Index(t.fds, fd)]
	for n := 0; n < MaxReads && r.io.readable(fd); {
		got, err := d.Read(a.in[n:n+MaxRun], a.sizes[:], Headroom)
		for i := range max(0, got) {
			r.addBuffer(a.in[n], a.sizes[i])
			n++
		}
		r.reads++
		switch errno := errnoOf(err); errno {
		case 0, unix.EINTR:
		case unix.EBADFD: // the device was deleted
			return fmt.Errorf("read %s: %w", t.name, errno)
		case unix.EAGAIN, unix.EIO: // EIO: the device is down, and may come up again
			return nil
		default: // a superpacket of more than MaxRun segments loses the rest; one with an invalid header is lost
			r.Lost++
		}
	}
	return nil
}

// WriteBatch implements Port. It writes each packet to the Device alone, because the Device coalesces
// wrongly: it renumbers packets without DF, and rewrites wrong lengths and header checksums. It copies the
// packet, because the Device writes in front of it.
func (t *PortableTUN) WriteBatch(r *Ring, ps []*Packet) {
	a := r.portableArea()
	for _, p := range ps {
		a.write[0] = append(a.out[:Headroom], p.Bytes()...)
		r.Writes++
		_, err := t.devices[slices.Index(t.fds, t.queueFor(r, p))].Write(a.write[:], Headroom)
		p.verdictOf(errnoOf(err))
	}
}

// batchConn is an ipv4.PacketConn or an ipv6.PacketConn.
type batchConn interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// unpolled is a UDP socket for x/net, which takes a net.UDPConn and calls only these methods.
type unpolled struct {
	*net.UDPConn // nil
	fd           descriptor
	local        netip.AddrPort
}

func (u unpolled) SyscallConn() (syscall.RawConn, error) { return u.fd, nil }
func (u unpolled) LocalAddr() net.Addr                   { return net.UDPAddrFromAddrPort(u.local) }

// descriptor is a syscall.RawConn whose calls never wait.
type descriptor int

// Control implements syscall.RawConn.
func (d descriptor) Control(f func(uintptr)) error { f(uintptr(d)); return nil }

// Read implements syscall.RawConn.
func (d descriptor) Read(f func(uintptr) bool) error { f(uintptr(d)); return nil }

// Write implements syscall.RawConn.
func (d descriptor) Write(f func(uintptr) bool) error { f(uintptr(d)); return nil }

// ReadBatch implements Port by one recvmmsg(2). x/net allocates the address of each sender.
func (s *UDPSocket) ReadBatch(r *Ring) error {
	a := r.portableArea()
	for r.io.readable(s.fd) {
		for i := range a.messages {
			m := &a.messages[i]
			m.Buffers[0], m.OOB = a.in[i][Headroom:], a.control[i].ctl[:]
		}
		n, err := s.batch.ReadBatch(a.messages[:], unix.MSG_TRUNC)
		if errno := errnoOf(err); errno == unix.EINTR || isQueuedError(errno) {
			continue
		} else if errno != 0 && errno != unix.EAGAIN {
			return fmt.Errorf("receive on udp %v: %w", s.local, errno)
		}
		r.reads++
		for i := range max(0, n) {
			m := &a.messages[i]
			p := r.addBuffer(a.in[i], min(m.N, MaxPacket))
			from := m.Addr.(*net.UDPAddr).AddrPort()
			p.Outer = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
			p.Truncated = m.N > MaxPacket
			_ = readControl(p, m.OOB[:m.NN])
		}
		return nil
	}
	return nil
}

// WriteBatch implements Port by sendmmsg(2).
func (s *UDPSocket) WriteBatch(r *Ring, ps []*Packet) {
	a := r.portableArea()
	for len(ps) > 0 {
		n := min(len(ps), MaxReads)
		for i, p := range ps[:n] {
			m := &a.messages[i]
			c := &a.control[i]
			c.used = 0
			c.putECN(p)
			m.Buffers[0], m.OOB = p.Datagram(), c.ctl[:c.used]
			to := &a.to[i]
			if to.Port = int(p.Outer.Port()); p.Outer.Addr().Is4() {
				v4 := p.Outer.Addr().As4()
				to.IP = append(to.IP[:0], v4[:]...)
			} else {
				v6 := p.Outer.Addr().As16()
				to.IP = append(to.IP[:0], v6[:]...)
			}
			m.Addr = to
		}
		s.sendBatch(r, a.messages[:n], ps[:n])
		ps = ps[n:]
	}
}

// sendBatch sends ms, and sets the verdict of each of ps.
func (s *UDPSocket) sendBatch(r *Ring, ms []ipv4.Message, ps []*Packet) {
	var tries sendTries
	for len(ps) > 0 {
		r.Writes++
		n, err := s.batch.WriteBatch(ms, 0)
		if errno := errnoOf(err); n <= 0 {
			if tries.shouldRetry(r, s.fd, errno) {
				continue
			}
			n = 1
			ps[0].verdictOf(errno)
		} else {
			for _, p := range ps[:n] {
				p.Delivered()
			}
		}
		ms, ps, tries = ms[n:], ps[n:], sendTries{}
	}
}

// errnoOf returns the kernel's errno in err, or EINVAL if err is not the kernel's. Device returns
// os.ErrClosed for EBADFD.
func errnoOf(err error) unix.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, os.ErrClosed):
		return unix.EBADFD
	}
	errno := unix.Errno(unix.EINVAL)
	errors.As(err, &errno)
	return errno
}

// portableArea is a worker's memory for path portable: packets in separate buffers. The kernel backs only the
// part that is written to.
type portableArea struct {
	in       [MaxReads + MaxRun][]byte
	sizes    [MaxRun]int
	out      []byte
	write    [1][]byte
	messages [MaxReads]ipv4.Message
	control  [MaxReads]sendControl
	to       [MaxReads]net.UDPAddr
}

// portableArea returns the area, which it allocates at first use.
func (r *Ring) portableArea() *portableArea {
	if r.portable != nil {
		return r.portable
	}
	r.portable = new(portableArea)
	for i := range r.portable.in {
		r.portable.in[i] = make([]byte, Headroom+MaxPacket)
	}
	r.portable.out = make([]byte, Headroom+MaxPacket)
	for i := range r.portable.messages {
		r.portable.messages[i].Buffers = make([][]byte, 1)
		r.portable.to[i].IP = make(net.IP, net.IPv6len)
	}
	return r.portable
}

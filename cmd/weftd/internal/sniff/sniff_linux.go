// Package sniff reads copies of the packets that pass a device of the kernel, for captures of overlays whose
// packets the kernel moves. Its packets begin with the IP header.
package sniff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// buffer is a socket's share of memory for packets that are not read yet, in bytes. Packets that do not fit
// are missed.
const buffer = 4 << 20

// Tap is a packet socket on one device. It is for one goroutine.
type Tap struct {
	fd     int
	missed uint64
	buf    []byte
}

// Packet is what passed the device.
type Packet struct {
	Time time.Time
	// Outbound packets were sent, or forwarded, by this host.
	Outbound bool
	// Length is that of the packet in bytes. borrowed: Data is valid until the next call of Next.
	Length int
	Data   []byte
}

// Open opens a Tap in the network namespace of the calling thread. filter is in front of it from the start;
// snapLen is how many bytes of a packet are kept.
func Open(device string, filter []bpf.RawInstruction, snapLen int) (t *Tap, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("capture on %s: %w", device, err)
		}
	}()
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	// Protocol 0: nothing arrives before filter and device are set.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	program := make([]unix.SockFilter, len(filter))
	for i, in := range filter {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) // less also does
	var all [2]byte
	binary.BigEndian.PutUint16(all[:], unix.ETH_P_ALL)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(all[:]),
		Ifindex: link.Index}); err != nil {
		return nil, err
	}
	return &Tap{fd: fd, buf: make([]byte, snapLen)}, nil
}

// Next returns a packet that waits; ok is false if there is none. The error says that the device is gone.
func (t *Tap) Next() (p Packet, ok bool, err error) {
	for {
		n, from, err := unix.Recvfrom(t.fd, t.buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return Packet{}, false, nil
		case err != nil:
			return Packet{}, false, err
		}
		l, _ := from.(*unix.SockaddrLinklayer)
		return Packet{
			Time: time.Now(), Outbound: l != nil && l.Pkttype == unix.PACKET_OUTGOING, Length: n,
			Data: t.buf[:min(n, len(t.buf))],
		}, true, nil
	}
}

// Missed is how many packets found no room until now.
func (t *Tap) Missed() uint64 {
	if s, err := unix.GetsockoptTpacketStats(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		// which sets them to 0
		t.missed += uint64(s.Drops)
	}
	return t.missed
}

// Close frees the socket.
func (t *Tap) Close() error { return unix.Close(t.fd) }

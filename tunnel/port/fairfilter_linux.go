package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Throttler is an underlay that can throttle sources in front of its receive queues.
type Throttler interface {
	// Fill returns how full the fullest receive queue is, from 0 to about 1. It is 0 if the kernel does not
	// report it.
	Fill() float64
	// Throttle admits only a share of the packets of these sources. It replaces the sources of the last call.
	// With no sources it removes the filter.
	Throttle([]ThrottledSource) error
}

// ThrottledSource is an outer address, and the share of its packets that is admitted.
type ThrottledSource struct {
	Addr  netip.Addr
	Share float64
}

// Fill implements Throttler.
func (s *UDPSocket) Fill() float64 { return queueFill(s.fd) }

// Throttle implements Throttler.
func (s *UDPSocket) Throttle(held []ThrottledSource) error {
	return throttleSockets(s.local.Addr().Is6(), held, s.fd)
}

func (s *sockets) Fill() (most float64) {
	for _, u := range s.group {
		most = max(most, u.Fill())
	}
	return most
}

func (s *sockets) Throttle(held []ThrottledSource) error {
	var fds []int
	for _, u := range s.group {
		fds = append(fds, u.fd)
	}
	return throttleSockets(s.local.Addr().Is6(), held, fds...)
}

func (f *frames) Fill() (most float64) {
	for _, fd := range f.fds[:f.listening] {
		most = max(most, queueFill(fd))
	}
	return most
}

func (f *frames) Throttle(held []ThrottledSource) error {
	filter, err := frameFilter(f.local, held...)
	for _, fd := range f.fds[:f.listening] {
		if err == nil {
			err = attachFilter(fd, filter)
		}
	}
	return err
}

// throttleSockets replaces the filter of UDP sockets.
func throttleSockets(six bool, held []ThrottledSource, fds ...int) error {
	if len(held) == 0 {
		var errs []error
		for _, fd := range fds {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil &&
				!errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("SO_DETACH_FILTER: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	filter, err := assemble(append(throttling(skfNetOff, six, held), bpf.RetConstant{Val: wholePacket}))
	for _, fd := range fds {
		if err == nil {
			err = attachFilter(fd, filter)
		}
	}
	return err
}

// wholePacket is a filter's verdict that keeps all bytes of a packet.
const wholePacket = 1 << 18

// throttling returns instructions that return a random verdict for packets of throttled sources, and fall
// through for all others. header is the offset of the outer IP header.
func throttling(header uint32, six bool, held []ThrottledSource) (program []bpf.Instruction) {
	at, words := header+12, 1
	if six {
		at, words = header+8, 4
	}
	for _, h := range held {
		verdict := []bpf.Instruction{
			bpf.LoadExtension{Num: bpf.ExtRand},
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(min(h.Share, 1) * math.MaxUint32), SkipTrue: 1},
			bpf.RetConstant{Val: wholePacket},
			bpf.RetConstant{Val: 0},
		}
		b := h.Addr.AsSlice()
		for i := range words {
			program = append(program, bpf.LoadAbsolute{Off: at + uint32(4*i), Size: 4}, bpf.JumpIf{
				Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(b[4*i:]),
				SkipTrue: uint8(2*(words-1-i) + len(verdict)),
			})
		}
		program = append(program, verdict...)
	}
	return program
}

// The fields of SO_MEMINFO (linux/sock_diag.h), since Linux 4.12.
const (
	memAlloc = 0 // SK_MEMINFO_RMEM_ALLOC, bytes
	memSize  = 1 // SK_MEMINFO_RCVBUF, bytes
	memDrops = 8 // SK_MEMINFO_DROPS, packets
	memVars  = 9
)

// queueFill returns the used part of a socket's receive buffer, from 0 to about 1.
func queueFill(fd int) float64 {
	info, ok := memInfo(fd)
	if !ok || info[memSize] == 0 {
		return 0
	}
	return float64(info[memAlloc]) / float64(info[memSize])
}

func memInfo(fd int) (info [memVars]uint32, ok bool) {
	n := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&n)), 0)
	return info, errno == 0
}

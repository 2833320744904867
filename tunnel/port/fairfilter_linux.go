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

// Holding is an underlay whose receive queues can hold sources back before they are full.
type Holding interface {
	// Fill is how full the fullest receive queue is, from 0 to about 1; 0 if the kernel does not say.
	Fill() float64
	// Hold lets only a share of the packets of these sources into the queues, in place of those of
	// the call before; of none it takes the filter away.
	Hold([]HeldSource) error
}

// HeldSource is an outer address, and which share of what it sends is let through.
type HeldSource struct {
	Addr  netip.Addr
	Share float64
}

// Fill implements Holding.
func (s *UDPSocket) Fill() float64 { return queueFill(s.fd) }

// Hold implements Holding.
func (s *UDPSocket) Hold(held []HeldSource) error { return holdAt(s.local.Addr().Is6(), held, s.fd) }

func (s *sockets) Fill() (most float64) {
	for _, u := range s.group {
		most = max(most, u.Fill())
	}
	return most
}

func (s *sockets) Hold(held []HeldSource) error {
	var fds []int
	for _, u := range s.group {
		fds = append(fds, u.fd)
	}
	return holdAt(s.local.Addr().Is6(), held, fds...)
}

func (f *frames) Fill() (most float64) {
	for _, fd := range f.fds[:f.listening] {
		most = max(most, queueFill(fd))
	}
	return most
}

func (f *frames) Hold(held []HeldSource) error {
	filter, err := frameFilter(f.local, held...)
	for _, fd := range f.fds[:f.listening] {
		if err == nil {
			err = attachFilter(fd, filter)
		}
	}
	return err
}

// holdAt replaces the filter of UDP sockets.
func holdAt(six bool, held []HeldSource, fds ...int) error {
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
	filter, err := assemble(append(holding(skfNetOff, six, held), bpf.RetConstant{Val: wholePacket}))
	for _, fd := range fds {
		if err == nil {
			err = attachFilter(fd, filter)
		}
	}
	return err
}

// wholePacket is how many bytes of a packet a filter keeps: all.
const wholePacket = 1 << 18

// holding are the instructions that end with a verdict for a packet of a held source, the kernel's dice
// having been thrown, and go on behind themselves for all others. header is the offset of the outer IP
// header.
func holding(header uint32, six bool, held []HeldSource) (program []bpf.Instruction) {
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

// queueFill is how much of its receive buffer a socket has in use.
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

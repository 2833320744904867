package port

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// lanePeriod is the modulus of the lanes' ports: that of lane i is the tunnel's port plus i, modulo
// lanePeriod. A receiver chooses the socket by the source port modulo how many it has (see
// sharing), a power of two up to lanePeriod, so that each lane of a peer gets another socket there.
const lanePeriod = 8

// openQueues opens the other sockets of the tunnel's port, for o.Queues in all. Where that fails one will
// do. Groups are since Linux 4.5.
func (s *sockets) openQueues(o UDPOptions) {
	if o.Queues < 2 {
		return
	}
	if err := s.share(o); err != nil {
		s.log.Warn("one worker receives all datagrams", "local", s.local, "cause", err)
		_ = unix.SetsockoptInt(s.group[0].fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0)
		closeAll(s.group[1:])
		s.group = s.group[:1]
	}
}

// openLanes opens the sockets of o.Lanes. Where one fails there are none: with some of them a flow
// would have no port to leave from.
func (s *sockets) openLanes(o UDPOptions) {
	for lane := 1; o.Lanes > 1 && lane <= o.Lanes; lane++ {
		u, err := s.openLane(o, lane)
		if err != nil {
			s.log.Warn("all datagrams leave from the tunnel's own port", "local", s.local, "cause", err)
			closeAll(s.lanes)
			s.lanes = nil
			return
		}
		s.lanes = append(s.lanes, u)
	}
}

func closeAll(l []*UDPSocket) {
	for _, u := range l {
		_ = u.Close()
	}
}

// share makes a SO_REUSEPORT group of the socket. It was bound without the option, so the port
// is nobody else's; and who joins later gets nothing, since the program never names it.
func (s *sockets) share(o UDPOptions) error {
	reuse := func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return fmt.Errorf("SO_REUSEPORT: %w", err)
		}
		return nil
	}
	if err := reuse(s.group[0].fd); err != nil {
		return err
	}
	o.Local = s.local
	for len(s.group) < o.Queues {
		u, err := listenUDP(o, reuse)
		if err != nil {
			return err
		}
		s.group = append(s.group, u)
	}
	program, err := sharing(s.local.Addr().Is6(), o.Queues)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptSockFprog(s.group[0].fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}

// openLane binds a lane's port: one near to what the kernel would choose, with the right
// remainder.
func (s *sockets) openLane(o UDPOptions, lane int) (*UDPSocket, error) {
	o.Local = netip.AddrPortFrom(s.local.Addr(), 0)
	near, err := listenUDP(o, deafen)
	if err != nil {
		return nil, err
	}
	defer near.Close()
	const mask = lanePeriod - 1
	port := near.local.Port()&^mask | (s.local.Port()+uint16(lane))&mask
	for range 64 {
		if port < 1024 {
			port |= 1 << 15 // wrapped
		}
		o.Local = netip.AddrPortFrom(s.local.Addr(), port)
		u, err := listenUDP(o, deafen)
		if !errors.Is(err, unix.EADDRINUSE) {
			return u, err
		}
		port += lanePeriod
	}
	return nil, fmt.Errorf("none free near %d: %w", near.local.Port(), unix.EADDRINUSE)
}

// deafen keeps datagrams from a socket. Errors about what it sent arrive.
func deafen(fd int) error {
	nothing := [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return attachFilter(fd, nothing[:])
}

func attachFilter(fd int, filter []unix.SockFilter) error {
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("SO_ATTACH_FILTER: %w", err)
	}
	return nil
}

// skfNetOff makes an offset one from the IP header (linux/filter.h).
const skfNetOff = 0xfff00000

// sharing is the classic BPF program that names one of n sockets for a datagram, by outer source
// address and port: the address puts the nodes that send from one port only on different
// sockets, and the port puts a node's lanes there. It is given frames and datagrams alike.
func sharing(six bool, n int) ([]unix.SockFilter, error) {
	return assemble(sharingAt(skfNetOff, six, n))
}

// sharingAt is sharing's program, of which header is the offset of the IP header.
func sharingAt(header uint32, six bool, n int) []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: header + 12, Size: 4}}
	port := []bpf.Instruction{bpf.LoadMemShift{Off: header}, bpf.LoadIndirect{Off: header, Size: 2}}
	if six {
		program[0] = bpf.LoadAbsolute{Off: header + 8, Size: 4}
		for _, at := range []uint32{12, 16, 20} {
			program = append(program, bpf.TAX{}, bpf.LoadAbsolute{Off: header + at, Size: 4},
				bpf.ALUOpX{Op: bpf.ALUOpXor})
		}
		port = []bpf.Instruction{bpf.LoadAbsolute{Off: header + 40, Size: 2}}
	}
	program = append(program,
		bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: 0x9e3779b1}, // neighbouring addresses, far apart
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 16},
		bpf.StoreScratch{Src: bpf.RegA, N: 0})
	program = append(program, port...)
	return append(program,
		bpf.LoadScratch{Dst: bpf.RegX, N: 0}, bpf.ALUOpX{Op: bpf.ALUOpAdd},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(n)}, bpf.RetA{})
}

func assemble(program []bpf.Instruction) ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	out := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		out[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return out, nil
}

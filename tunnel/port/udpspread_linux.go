package port

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// lanePeriod is the modulus of the lanes' ports: lane i has a port equal to the tunnel's port plus i, modulo
// lanePeriod. A receiver chooses the socket by the source port modulo its number of sockets (see selector),
// which is a power of two up to lanePeriod. Each lane of a peer therefore gets a different socket there.
const lanePeriod = 8

// openQueues opens the other sockets of the tunnel's port, for o.Queues in all. If that fails, one is used.
// SO_REUSEPORT programs exist since Linux 4.5.
func (s *sockets) openQueues(o UDPOptions) {
	if o.Queues < 2 {
		return
	}
	if err := s.openGroup(o); err != nil {
		s.log.Warn("one worker receives all datagrams", "local", s.local, "cause", err)
		_ = unix.SetsockoptInt(s.group[0].fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0)
		closeAll(s.group[1:])
		s.group = s.group[:1]
	}
}

// openLanes opens the sockets of o.Lanes. If one fails, none is used: with only some of them, some flows
// would have no port.
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

// openGroup makes the socket a SO_REUSEPORT group. The socket was bound without the option, so no other
// process has the port. A process that joins later gets no datagrams, because the program never selects its
// socket.
func (s *sockets) openGroup(o UDPOptions) error {
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
	program, err := selector(s.local.Addr().Is6(), o.Queues)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptSockFprog(s.group[0].fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("SO_ATTACH_REUSEPORT_CBPF: %w", err)
	}
	return nil
}

// openLane binds a lane's socket to a port with the right remainder, near one that the kernel chose.
func (s *sockets) openLane(o UDPOptions, lane int) (*UDPSocket, error) {
	o.Local = netip.AddrPortFrom(s.local.Addr(), 0)
	near, err := listenUDP(o, dropInput)
	if err != nil {
		return nil, err
	}
	defer near.Close()
	const mask = lanePeriod - 1
	port := near.local.Port()&^mask | (s.local.Port()+uint16(lane))&mask
	for range 64 {
		if port < 1024 {
			port |= 1 << 15 // wrapped around
		}
		o.Local = netip.AddrPortFrom(s.local.Addr(), port)
		u, err := listenUDP(o, dropInput)
		if !errors.Is(err, unix.EADDRINUSE) {
			return u, err
		}
		port += lanePeriod
	}
	return nil, fmt.Errorf("none free near %d: %w", near.local.Port(), unix.EADDRINUSE)
}

// dropInput makes a socket drop its input. Errors about sent datagrams still arrive.
func dropInput(fd int) error {
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

// skfNetOff makes an offset relative to the IP header (linux/filter.h).
const skfNetOff = 0xfff00000

// selector returns a classic BPF program that selects one of n sockets by the outer source address and port.
// The address spreads nodes that send from one port only, and the port spreads a node's lanes. The program
// works for frames and for datagrams.
func selector(six bool, n int) ([]unix.SockFilter, error) {
	return assemble(selectorAt(skfNetOff, six, n))
}

// selectorAt returns the program of selector for an IP header at offset header.
func selectorAt(header uint32, six bool, n int) []bpf.Instruction {
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
		bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: 0x9e3779b1}, // spread neighbouring addresses
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

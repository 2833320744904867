package port

import "net/netip"

// OffloadSocket is the underlay port of path socket. It sends and receives runs of datagrams in one system
// call. It is safe for concurrent use.
type OffloadSocket struct {
	sockets *sockets
	runs    *runWriter // writes to sockets
}

// ListenOffload is ListenUDP with the offloads that the kernel supports and o.Off does not switch off.
// Without any offload it still carries packets.
func ListenOffload(o UDPOptions) (*OffloadSocket, error) {
	s, err := listenSockets(o)
	if err != nil {
		return nil, err
	}
	return &OffloadSocket{sockets: s, runs: newRunWriter(s, o, s.local.String(), s.supportsRuns())}, nil
}

// LocalAddr implements Underlay.
func (s *OffloadSocket) LocalAddr() netip.AddrPort { return s.sockets.local }

// WriteBatch implements Port.
func (s *OffloadSocket) WriteBatch(r *Ring, ps []*Packet) { s.runs.writeRuns(r, ps) }

// Close implements Port.
func (s *OffloadSocket) Close() error { return s.sockets.close() }

// Offloads implements Super.
func (s *OffloadSocket) Offloads() []OffloadStats {
	return append(s.runs.stats(), s.sockets.gro.stats())
}

// Overflow returns the number of datagrams that the kernel dropped at the sockets (sk_drops).
func (s *OffloadSocket) Overflow() uint64 { return s.sockets.overflow() }

// Queues implements Port.
func (s *OffloadSocket) Queues() []Queue { return s.sockets.queues() }

// LeavesPartial implements Super.
func (s *OffloadSocket) LeavesPartial(recv Recv) bool { return s.runs.LeavesPartial(recv) }

// RunOffload implements Spread.
func (s *OffloadSocket) RunOffload() *OffloadSwitch { return &s.runs.gso }

// Lanes implements Spread.
func (s *OffloadSocket) Lanes() int { return max(1, len(s.sockets.lanes)) }

// LanePort implements Spread.
func (s *OffloadSocket) LanePort(lane uint8) uint16 { return s.sockets.LanePort(lane) }

// Readers implements Spread.
func (s *OffloadSocket) Readers() int { return len(s.sockets.group) }

// Fill implements Throttler.
func (s *OffloadSocket) Fill() float64 { return s.sockets.Fill() }

// Throttle implements Throttler.
func (s *OffloadSocket) Throttle(held []ThrottledSource) error { return s.sockets.Throttle(held) }

package port

import "net/netip"

// A Port is one edge of the data plane: the host's TUN, a pod's TUN, or the
// underlay. Any worker may write to it, so WriteBatch
// is safe for concurrent use with a Ring of its own each.
type Port interface {
	// Queues are what is read: the same at every call, at least one.
	Queues() []Queue
	// WriteBatch sends ps in order and gives each of them a verdict, Packet.Delivered
	// or Packet.Drop. The packets are borrowed: they belong to the ring of the caller, and their bytes stay as
	// they are, but that a partial checksum may be completed.
	WriteBatch(r *Ring, ps []*Packet)
	// Close frees the descriptor. The Engine calls it when no worker uses the port.
	Close() error
}

// Underlay is a Port whose packets are datagrams with an outer source or destination.
type Underlay interface {
	Port
	// LocalAddr is the outer address and port that datagrams leave from.
	LocalAddr() netip.AddrPort
}

// Super is a port that takes superpackets as they are, and has offloads to report.
type Super interface {
	// LeavesPartial says whether a packet with a partial checksum can go to a receiver that
	// parses recv.
	LeavesPartial(recv Recv) bool
	Offloads() []OffloadStats
}

// A Queue is one descriptor of a port. One worker reads it, independently of the port's other queues.
type Queue interface {
	// PollFD is a descriptor that epoll reports readable when ReadBatch has something
	// to read. It is nonblocking, belongs to the port, and stays valid until Close.
	PollFD() int
	// ReadBatch fills slots of r (Ring.Slot, Ring.Commit) until there is nothing more
	// to read, or no slot. It never blocks. An error means that the port is dead.
	ReadBatch(r *Ring) error
}

// FDQueue is a queue of a port that has several, or whose only one has errors to read.
type FDQueue struct {
	FD int // what epoll reports; the port's
	// Home is the worker that is to read it, modulo how many there are, so that a port with several has each of
	// them read by another; or AnyWorker, for the least loaded.
	Home   int
	Read   func(*Ring) error
	Errors *UDPSocket // learns of errors about datagrams that were sent; nil for none
}

// AnyWorker is the home of a queue that the least loaded worker reads.
const AnyWorker = -1

// PollFD implements Queue.
func (q FDQueue) PollFD() int { return q.FD }

// ReadBatch implements Queue.
func (q FDQueue) ReadBatch(r *Ring) error { return q.Read(r) }

// homeOf is the home of queue i of n.
func homeOf(i, n int) int {
	if n == 1 {
		return AnyWorker
	}
	return i
}

// Spread is an underlay that can tell inner flows apart on the wire.
type Spread interface {
	// Lanes is a power of two: how many source ports there are for the flows to one peer.
	// Packet.Lane is 1 to Lanes, or 0 for the tunnel's own port.
	Lanes() int
	// LanePort is the source port of a lane.
	LanePort(lane uint8) uint16
	// Readers is how many queues share the arriving datagrams. Each flow has one.
	Readers() int
	// RunOffload is the offload that sends runs of datagrams in one send.
	RunOffload() *OffloadSwitch
}

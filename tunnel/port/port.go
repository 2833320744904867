package port

import "net/netip"

// A Port is one end of the data plane: the host's TUN, a pod's TUN, or the underlay. Any worker may write to
// it, so WriteBatch is safe for concurrent use with different rings.
type Port interface {
	// Queues returns the queues to read, at least one. They are the same at every call.
	Queues() []Queue
	// WriteBatch sends ps in order, and sets the verdict of each by Packet.Delivered or Packet.Drop. The packets
	// are borrowed: the caller's ring owns them. WriteBatch may complete a partial checksum, and leaves all
	// other bytes unchanged.
	WriteBatch(r *Ring, ps []*Packet)
	// Close closes the descriptors. The Engine calls it when no worker uses the port.
	Close() error
}

// Underlay is a Port whose packets are datagrams with an outer source or destination.
type Underlay interface {
	Port
	// LocalAddr returns the outer address and port that datagrams are sent from.
	LocalAddr() netip.AddrPort
}

// Super is a port that accepts superpackets, and reports offloads.
type Super interface {
	// LeavesPartial reports whether the port can send a packet with a partial checksum to a receiver that parses
	// recv.
	LeavesPartial(recv Recv) bool
	Offloads() []OffloadStats
}

// A Queue is one descriptor of a port. One worker reads it, independently of the port's other queues.
type Queue interface {
	// PollFD returns a descriptor that epoll reports as readable when ReadBatch has something to read. It is
	// nonblocking. The port owns it, and it is valid until Close.
	PollFD() int
	// ReadBatch fills slots of r (Ring.Slot, Ring.Commit) until nothing is left to read or r has no slot. It
	// never blocks. An error means that the port is dead.
	ReadBatch(r *Ring) error
}

// FDQueue is a queue of a port that has several queues, or whose only queue has errors to read.
type FDQueue struct {
	FD int // for epoll; the port owns it
	// Worker is the index of the worker that reads the queue, modulo the number of workers. A port with several
	// queues thus gets different workers. AnyWorker means the least loaded worker.
	Worker int
	Read   func(*Ring) error
	Errors *UDPSocket // has the errors about sent datagrams; nil if there are none
}

// AnyWorker is the Worker of a queue that the least loaded worker reads.
const AnyWorker = -1

// PollFD implements Queue.
func (q FDQueue) PollFD() int { return q.FD }

// ReadBatch implements Queue.
func (q FDQueue) ReadBatch(r *Ring) error { return q.Read(r) }

// workerFor returns the Home of queue i of n.
func workerFor(i, n int) int {
	if n == 1 {
		return AnyWorker
	}
	return i
}

// Spread is an underlay that distinguishes inner flows on the wire.
type Spread interface {
	// Lanes returns the number of source ports for flows to one peer, a power of two. Packet.Lane is 1 to Lanes,
	// or 0 for the tunnel's own port.
	Lanes() int
	// LanePort returns the source port of a lane.
	LanePort(lane uint8) uint16
	// Readers returns the number of queues that share the received datagrams. Each flow has one queue.
	Readers() int
	// RunOffload returns the offload that sends runs of datagrams in one call.
	RunOffload() *OffloadSwitch
}

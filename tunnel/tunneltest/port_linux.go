// Package tunneltest has ports in memory, for tests and benchmarks of the whole
// loop without privileges and without the kernel's share of the cost.
package tunneltest

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/tunnel/port"
)

// Datagram is a packet on an underlay port, or (with only Data) on an inner one.
type Datagram struct {
	// Outer is the other end: the source of what is injected, the destination of what
	// was written.
	Outer netip.AddrPort
	ECN   encap.ECN
	Data  []byte
}

// Port is a tunnel.Underlay in memory. The engine reads what a test injects; what the engine writes is kept
// for Next, or goes to the port it is connected to. It allocates nothing after New. It is safe for concurrent
// use.
type Port struct {
	local   netip.AddrPort
	eventfd int
	in, out queue
	peer    *Port
	wrote   chan struct{}

	// Reads and Writes count the calls of ReadBatch that found something, and of WriteBatch.
	Reads, Writes atomic.Uint64
}

// New makes a port that holds up to depth packets of up to size bytes each way.
// local is its outer address; the zero value will do for an inner port.
func New(local netip.AddrPort, depth, size int) (*Port, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p := &Port{local: local, eventfd: fd, wrote: make(chan struct{}, 1)}
	p.in.init(depth, size)
	p.out.init(depth, size)
	return p, nil
}

// Connect makes p and q the two ends of a wire.
func Connect(p, q *Port) { p.peer, q.peer = q, p }

// LocalAddr implements port.Underlay.
func (p *Port) LocalAddr() netip.AddrPort { return p.local }

// Queues implements port.Port.
func (p *Port) Queues() []port.Queue { return []port.Queue{p} }

// PollFD implements port.Queue.
func (p *Port) PollFD() int { return p.eventfd }

// Close implements port.Port.
func (p *Port) Close() error { return unix.Close(p.eventfd) }

// Inject gives the engine a packet to read; d.Data is copied. It is false if the
// port is full.
func (p *Port) Inject(d Datagram) bool {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if !p.in.push(d) {
		return false
	}
	if p.in.n == 1 {
		_, _ = unix.Write(p.eventfd, one[:])
	}
	return true
}

// one is an eventfd's increment.
var one = [8]byte{1}

// ReadBatch implements port.Queue.
func (p *Port) ReadBatch(r *port.Ring) error {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if p.in.n == 0 {
		return nil
	}
	p.Reads.Add(1)
	for p.in.n > 0 {
		s := r.Slot()
		if s == nil {
			return nil
		}
		d := p.in.front()
		s.Outer, s.OuterECN = d.Outer, d.ECN
		r.Commit(copy(s.Space(), d.Data))
		p.in.pop()
	}
	var b [8]byte
	_, _ = unix.Read(p.eventfd, b[:])
	return nil
}

// WriteBatch implements port.Port.
func (p *Port) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	p.Writes.Add(1)
	for _, s := range ps {
		d := Datagram{Outer: s.Outer, ECN: s.OuterECN, Data: s.Datagram()}
		ok := false
		if p.peer != nil {
			d.Outer = p.local
			ok = p.peer.Inject(d)
		} else {
			p.out.mu.Lock()
			ok = p.out.push(d)
			p.out.mu.Unlock()
		}
		if ok {
			s.Delivered()
		} else {
			s.Drop(port.DropBusy)
		}
	}
	select {
	case p.wrote <- struct{}{}:
	default:
	}
}

// Next is the next packet that the engine wrote. ok is false if there is none
// within the time. The data are a copy.
func (p *Port) Next(within time.Duration) (d Datagram, ok bool) {
	deadline := time.After(within)
	for {
		p.out.mu.Lock()
		if p.out.n > 0 {
			f := p.out.front()
			d = Datagram{Outer: f.Outer, ECN: f.ECN, Data: append([]byte(nil), f.Data...)}
			p.out.pop()
			p.out.mu.Unlock()
			return d, true
		}
		p.out.mu.Unlock()
		select {
		case <-p.wrote:
		case <-deadline:
			return d, false
		}
	}
}

// Discard forgets what the engine wrote and returns how many packets that were.
func (p *Port) Discard() int {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	n := p.out.n
	for p.out.n > 0 {
		p.out.pop()
	}
	return n
}

// queue is a ring of packets with memory of its own.
type queue struct {
	mu      sync.Mutex
	slots   []Datagram
	head, n int
}

func (q *queue) init(depth, size int) {
	q.slots = make([]Datagram, depth)
	for i := range q.slots {
		q.slots[i].Data = make([]byte, 0, size)
	}
}

func (q *queue) push(d Datagram) bool {
	if q.n == len(q.slots) {
		return false
	}
	s := &q.slots[(q.head+q.n)%len(q.slots)]
	if len(d.Data) > cap(s.Data) {
		return false
	}
	s.Outer, s.ECN = d.Outer, d.ECN
	s.Data = append(s.Data[:0], d.Data...)
	q.n++
	return true
}

func (q *queue) front() *Datagram { return &q.slots[q.head] }

func (q *queue) pop() { q.head, q.n = (q.head+1)%len(q.slots), q.n-1 }

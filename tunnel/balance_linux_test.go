package tunnel

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
)

// numberedPort has a packet at every look, each with the number after the one before, and knows whether two workers read it at once.
type numberedPort struct {
	t        *testing.T
	fd       int
	src, dst string
	next     uint32
	reading  atomic.Int32
	got      atomic.Uint32 // how many packets were written to it
	last     uint32
}

func newNumberedPort(t *testing.T, src, dst string) *numberedPort {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	return &numberedPort{t: t, fd: fd, src: src, dst: dst}
}

func (p *numberedPort) PollFD() int { return p.fd }

func (p *numberedPort) ReadBatch(r *Ring) error {
	if p.reading.Add(1) > 1 {
		p.t.Error("two workers read one queue")
	}
	defer p.reading.Add(-1)
	for range 4 {
		b := ipv4Packet(p.src, p.dst, 64)
		binary.BigEndian.PutUint32(b[60:], p.next)
		p.next++
		copy(r.Slot().Space(), b)
		r.Commit(len(b))
	}
	return nil
}

func (p *numberedPort) WriteBatch(_ *Ring, ps []*Packet) {
	for _, q := range ps {
		if n := binary.BigEndian.Uint32(q.Bytes()[60:]); n != p.last {
			p.t.Errorf("packet %d came where %d was next", n, p.last)
		}
		p.last++
		p.got.Add(1)
		q.Delivered()
	}
}

func (p *numberedPort) Close() error { return unix.Close(p.fd) }

// A queue that goes from worker to worker under traffic is never read by two, and its packets keep their order.
func TestMovedQueueKeepsOrder(t *testing.T) {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	a, b := newNumberedPort(t, "10.1.1.5", "10.1.1.6"), newNumberedPort(t, "10.1.1.6", "10.1.1.5")
	for _, p := range []*numberedPort{a, b} {
		if _, err := e.AttachPod(p, PodOptions{Addrs: []netip.Addr{addr(p.src)}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	e.mu.Lock()
	var queues []*queue
	for _, a := range e.attached {
		queues = append(queues, a.queues[0])
	}
	e.mu.Unlock()
	for i := range 300 {
		q := queues[i%2]
		e.mu.Lock()
		if err := e.move(q, e.workers[1-q.worker.Load().index]); err != nil {
			t.Error(err)
		}
		e.mu.Unlock()
		if i%50 > 0 {
			continue
		}
		from := [2]uint32{a.got.Load(), b.got.Load()}
		await.Within(t, 20*time.Second, "packets after a move", func() error {
			if a.got.Load() == from[0] || b.got.Load() == from[1] {
				return fmt.Errorf("%d and %d came", a.got.Load()-from[0], b.got.Load()-from[1])
			}
			return nil
		})
	}
	e.mu.Lock()
	for i, w := range e.workers {
		n := 0
		for _, q := range queues {
			if q.worker.Load() == w {
				n++
			}
		}
		if w.queues != n {
			t.Errorf("worker %d counts %d queues, and has %d", i, w.queues, n)
		}
	}
	e.mu.Unlock()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// idlePort is a port with so many queues, at which nothing arrives.
type idlePort struct {
	nullPort
	fds []int
}

func newIdlePort(t *testing.T, queues int) *idlePort {
	p := &idlePort{}
	for range queues {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		p.fds = append(p.fds, fd)
	}
	return p
}

func (p *idlePort) PollFD() int               { return p.fds[0] }
func (p *idlePort) ReadBatch(*Ring) error     { return nil }
func (p *idlePort) LocalAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:8285") }

func (p *idlePort) Queues() (l []Queue) {
	for _, fd := range p.fds {
		l = append(l, tunQueue{idleQueue{}, fd, anyWorker})
	}
	return l
}

func (p *idlePort) Close() error {
	for _, fd := range p.fds {
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

type idleQueue struct{}

func (idleQueue) readFrom(int, *Ring) error { return nil }

// balanced is an engine with the ports of path raw, whose underlay has two queues, and two pods.
type balanced struct {
	*Engine
	under, host, one, other *queue
}

func newBalanced(t *testing.T, workers int, underFirst bool) balanced {
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	b := balanced{Engine: e}
	first := func(id PortID, err error) *queue {
		if err != nil {
			t.Fatal(err)
		}
		return e.attached[id].queues[0]
	}
	if underFirst {
		b.under = first(e.Attach(newIdlePort(t, 2), RoleUnderlay))
	}
	b.host = first(e.Attach(newIdlePort(t, 1), RoleHost))
	if !underFirst {
		b.under = first(e.Attach(newIdlePort(t, 2), RoleUnderlay))
	}
	b.one = first(e.AttachPod(newIdlePort(t, 1), PodOptions{Addrs: []netip.Addr{addr("10.1.1.5")}}))
	b.other = first(e.AttachPod(newIdlePort(t, 1), PodOptions{Addrs: []netip.Addr{addr("10.1.1.6")}}))
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// bring has queues do so much work, in milliseconds of the 50 that have passed, and the engine act upon it.
func (b balanced) bring(milliseconds map[*queue]uint64) {
	for q, n := range milliseconds {
		q.work.Store(q.work.Load() + n*uint64(time.Millisecond))
	}
	b.balance(50*time.Millisecond, true)
}

func (b balanced) at(t *testing.T, when string, under, host, one, other int) {
	t.Helper()
	got := [4]int{}
	for i, q := range []*queue{b.under, b.host, b.one, b.other} {
		got[i] = q.worker.Load().index
	}
	if want := [4]int{under, host, one, other}; got != want {
		t.Errorf("%s: underlay, host and pods are read by workers %v, want %v", when, got, want)
	}
}

// With two workers each direction has its own, in whatever order ports come.
func TestEachDirectionHasAWorker(t *testing.T) {
	for _, underFirst := range []bool{false, true} {
		newBalanced(t, 2, underFirst).at(t, fmt.Sprintf("underlay first %t", underFirst), 1, 0, 0, 0)
	}
	newBalanced(t, 1, false).at(t, "one worker", 0, 0, 0, 0)
}

func TestBalance(t *testing.T) {
	b := newBalanced(t, 2, false)
	b.bring(map[*queue]uint64{b.one: 40, b.under: 10})
	b.at(t, "one pod to a peer", 1, 0, 0, 0)
	b.bring(map[*queue]uint64{b.one: 40, b.under: 40})
	b.at(t, "both directions of one pod", 1, 0, 0, 0)
	b.bring(map[*queue]uint64{b.one: 4, b.other: 4})
	b.at(t, "little between two pods", 1, 0, 0, 0)
	b.bring(map[*queue]uint64{b.one: 40, b.other: 5})
	b.at(t, "too little to gain", 1, 0, 0, 0)
	b.balance(50*time.Millisecond, false)
	b.bring(map[*queue]uint64{b.one: 20, b.other: 15})
	b.at(t, "much between two pods", 1, 0, 0, 1)
	b.bring(map[*queue]uint64{b.under: 30, b.other: 20})
	b.at(t, "it was moved a moment ago", 1, 0, 0, 1)
	b.other.moved -= int64(2 * movedLately)
	b.bring(map[*queue]uint64{b.under: 30, b.other: 20})
	b.at(t, "and goes back beside much from peers", 1, 0, 0, 0)
	b.bring(map[*queue]uint64{b.under: 90})
	b.at(t, "the underlay stays", 1, 0, 0, 0)
}

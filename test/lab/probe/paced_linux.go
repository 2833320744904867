package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// PacedPlan is a stream of numbered UDP datagrams at a fixed rate.
type PacedPlan struct {
	From, To Endpoint
	// Rate is in packets a second; 1,000 by default.
	Rate int
	// Count is the number of packets; 10,000 by default.
	Count int
	// Size is the UDP payload in bytes, at least 16; 64 by default.
	Size int
	// Wait is how long after the last packet, or the last one that was late, another late one still counts; 1 s
	// by default.
	Wait time.Duration
}

// PacedResult says what became of the packets.
type PacedResult struct {
	// Sent counts attempts. Refused counts packets that the sender's kernel did not take, and RefusedErr
	// says why it did not take the first. They count as lost too.
	Sent, Refused int
	RefusedErr    error
	// Received counts different packets; Lost is Sent less Received.
	Received, Lost int
	// Duplicates counts further copies. Reordered counts packets that arrived after one with a
	// higher number (RFC 4737 section 3).
	Duplicates, Reordered int
	// Delays are those from the sender's to the receiver's user space, in the order of sending.
	Delays []time.Duration
	// Outages are runs of lost packets, in order.
	Outages []Outage
	// LongestSilence is the longest time between two arrivals.
	LongestSilence time.Duration
}

// Outage is a run of consecutive lost packets.
type Outage struct {
	First, Packets int
	// At is when the first of them was sent, from the start of the stream.
	At time.Duration
}

// Paced is a stream that is under way.
type Paced struct {
	plan     PacedPlan
	out, in  *net.UDPConn
	start    time.Time
	sent     []int64 // nanoseconds since start; written by the sender before the packet goes
	arrived  []int64 // likewise; 0 if it has not arrived; owned by the receiver until done
	progress atomic.Int64
	got      atomic.Int64

	duplicates, reordered int
	silence               time.Duration
	refused               int
	refusedErr            error
	sentAll, done         chan struct{}
}

const pacedHead = 8 + 8 // number, nanoseconds since the stream's start

// StartPaced opens both sockets and starts sending. The stream ends by itself, or when ctx does.
// The caller must Wait for it.
func StartPaced(ctx context.Context, plan PacedPlan) (*Paced, error) {
	p, err := newPaced(plan)
	if err != nil {
		return nil, err
	}
	go p.send(ctx) // closes sentAll; Wait waits for it
	go p.receive() // closes done; Wait waits for it
	return p, nil
}

// newPaced opens the sockets, and the stream's time begins.
func newPaced(plan PacedPlan) (*Paced, error) {
	plan.Rate, plan.Count = orElse(plan.Rate, 1000), orElse(plan.Count, 10000)
	plan.Size = max(orElse(plan.Size, 64), pacedHead)
	if plan.Wait == 0 {
		plan.Wait = time.Second
	}
	p := &Paced{
		plan: plan, sent: make([]int64, plan.Count), arrived: make([]int64, plan.Count),
		sentAll: make(chan struct{}), done: make(chan struct{}),
	}
	var err error
	if p.in, err = udpSocket(plan.To); err != nil {
		return nil, err
	}
	if p.out, err = udpSocket(plan.From); err != nil {
		_ = p.in.Close()
		return nil, err
	}
	p.start = time.Now()
	return p, nil
}

func orElse(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

func udpSocket(e Endpoint) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := e.NS.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.Addr, 0)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: open a UDP socket: %w", e.Name, err)
	}
	return conn, widen(conn)
}

// widen gives a socket a large receive buffer, so that packets for which the receiver is too slow
// for a moment do not count as lost by the network.
func widen(conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) != nil {
			// as much as an ordinary user may have
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20)
		}
	})
}

// send keeps to an absolute timetable: a packet that is late is sent at once, and those after it are
// not delayed. If many are late because this process had no processor, they are sent at eight times the
// pace. Sent all at once they could overflow a queue, which would look like loss of the network. send
// sleeps by a system call, since Go's timers may be a millisecond late.
func (p *Paced) send(ctx context.Context) {
	defer close(p.sentAll)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	to := netip.AddrPortFrom(p.plan.To.Addr, p.in.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	b := make([]byte, p.plan.Size)
	gap := time.Second / time.Duration(p.plan.Rate)
	due := p.start
	for i := range p.plan.Count {
		if scheduled := p.start.Add(time.Duration(i) * gap); scheduled.After(due) {
			due = scheduled
		}
		sleepUntil(due)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		due = now.Add(gap / 8)
		at := int64(now.Sub(p.start))
		p.sent[i] = at
		binary.BigEndian.PutUint64(b, uint64(i))
		binary.BigEndian.PutUint64(b[8:], uint64(at))
		if _, err := p.out.WriteToUDPAddrPort(b, to); err != nil {
			p.refused++
			if p.refusedErr == nil {
				p.refusedErr = err
			}
		}
		p.progress.Store(int64(i + 1))
	}
}

func sleepUntil(t time.Time) {
	if d := time.Until(t); d > 0 {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // if a signal cuts it short, the packet is early, which does no harm
	}
}

// look is how long receive waits for a packet before it asks whether it is over. A deadline that has passed
// is one for packets that are there too, so the last look begins after the time is over: what came while this
// process had no processor counts.
const look = 50 * time.Millisecond

func (p *Paced) receive() {
	defer close(p.done)
	b := make([]byte, 64<<10)
	highest, last, over := int64(-1), int64(0), false
	var quiet time.Time // since when all is sent and nothing comes
	for int(p.got.Load()) < p.plan.Count {
		_ = p.in.SetReadDeadline(time.Now().Add(look))
		n, _, err := p.in.ReadFromUDPAddrPort(b)
		now := int64(time.Since(p.start))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case <-p.sentAll:
			default:
				continue
			}
			if over || p.got.Load() == p.progress.Load() {
				return
			}
			if quiet.IsZero() {
				quiet = time.Now()
			}
			over = time.Since(quiet) >= p.plan.Wait
			continue
		}
		quiet, over = time.Time{}, false
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < pacedHead {
			continue
		}
		i := int64(binary.BigEndian.Uint64(b))
		if i < 0 || i >= int64(len(p.arrived)) {
			continue
		}
		if p.arrived[i] != 0 {
			p.duplicates++
			continue
		}
		p.arrived[i] = now
		p.got.Add(1)
		if i < highest {
			p.reordered++
		}
		highest = max(highest, i)
		if last != 0 {
			p.silence = max(p.silence, time.Duration(now-last))
		}
		last = now
	}
}

// Progress is how many packets went out and how many different ones came in so far.
func (p *Paced) Progress() (sent, received int) { return int(p.progress.Load()), int(p.got.Load()) }

// Wait waits for the end of the stream and returns what became of its packets.
func (p *Paced) Wait() PacedResult {
	<-p.sentAll
	<-p.done
	_ = p.out.Close()
	_ = p.in.Close()
	r := PacedResult{
		Sent: int(p.progress.Load()), Refused: p.refused, RefusedErr: p.refusedErr,
		Duplicates: p.duplicates, Reordered: p.reordered, LongestSilence: p.silence,
	}
	for i := range r.Sent {
		if p.arrived[i] != 0 {
			r.Received++
			r.Delays = append(r.Delays, time.Duration(p.arrived[i]-p.sent[i]))
			continue
		}
		if k := len(r.Outages) - 1; k >= 0 && r.Outages[k].First+r.Outages[k].Packets == i {
			r.Outages[k].Packets++
			continue
		}
		r.Outages = append(r.Outages, Outage{First: i, Packets: 1, At: time.Duration(p.sent[i])})
	}
	r.Lost = r.Sent - r.Received
	return r
}

// String writes the result as one line for a test's log.
func (r PacedResult) String() string {
	s := fmt.Sprintf("%d sent, %d received, %d lost, %d duplicate, %d reordered, longest silence %s, one way "+
		"p50 %s p99 %s",
		r.Sent, r.Received, r.Lost, r.Duplicates, r.Reordered, r.LongestSilence.Round(time.Microsecond),
		Quantile(r.Delays, 0.5).Round(time.Microsecond), Quantile(r.Delays, 0.99).Round(time.Microsecond))
	if r.Refused > 0 {
		s += fmt.Sprintf(", %d refused (%v)", r.Refused, r.RefusedErr)
	}
	return s
}

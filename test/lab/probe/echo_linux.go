package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// EchoPlan says how echo requests are sent.
type EchoPlan struct {
	// Count is the number of requests from each endpoint to each other.
	Count int
	// Interval is the time between two requests of one pair.
	Interval time.Duration
	// Wait is how long after the last request an answer still counts; 1 s by default.
	Wait time.Duration
}

// EchoResult says what became of the requests of one pair.
type EchoResult struct {
	From, To       string
	Sent, Received int
	// RTT are the round-trip times in the order of the requests, without the lost ones.
	RTT []time.Duration
	// Err is the first error of sending. A request that could not be sent counts as lost.
	Err error
}

// echoer is one endpoint's raw ICMP socket, with what it has sent and received.
type echoer struct {
	from  Endpoint
	conn  net.PacketConn
	id    uint16
	start time.Time

	mu      sync.Mutex
	open    int  // requests without an answer
	sentAll bool // there will be no further requests
	results []EchoResult
	rtts    [][]time.Duration // by target and request; 0 without an answer
}

// echoHead is the length of the payload's beginning: the target's index, the request's number, and
// nanoseconds since the start.
const echoHead = 4 + 4 + 8

// Echo lets every endpoint ping every other (ICMP or ICMPv6 by its address) at the same
// time, and returns one result for each ordered pair. All addresses are of one family.
// If ctx ends, what was measured so far is returned with its cause.
func Echo(ctx context.Context, ends []Endpoint, plan EchoPlan) ([]EchoResult, error) {
	return echo(ctx, ends, ends, plan)
}

// Ping lets one endpoint ping any address, in the lab or not. The result's To is that address.
func Ping(ctx context.Context, from Endpoint, to netip.Addr, plan EchoPlan) (EchoResult, error) {
	all, err := echo(ctx, []Endpoint{from}, []Endpoint{{Name: to.String(), Addr: to}}, plan)
	if len(all) == 0 {
		return EchoResult{From: from.Name, To: to.String()}, err
	}
	return all[0], err
}

func echo(ctx context.Context, froms, ends []Endpoint, plan EchoPlan) ([]EchoResult, error) {
	if plan.Wait == 0 {
		plan.Wait = time.Second
	}
	start := time.Now()
	var all []*echoer
	defer func() {
		for _, e := range all {
			_ = e.conn.Close()
		}
	}()
	for i, from := range froms {
		e, err := newEchoer(from, uint16(i+1), ends, plan, start)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	var readers, senders sync.WaitGroup
	for _, e := range all {
		readers.Go(e.read) // ends when its deadline passes, or its socket is closed
		senders.Go(func() { e.send(ctx, ends, plan) })
	}
	senders.Wait()
	if ctx.Err() != nil {
		plan.Wait = 0
	}
	for _, e := range all {
		e.stop(plan.Wait)
	}
	readers.Wait()
	var out []EchoResult
	for _, e := range all {
		out = append(out, e.finish()...)
	}
	return out, context.Cause(ctx)
}

func newEchoer(from Endpoint, id uint16, ends []Endpoint, plan EchoPlan, start time.Time) (*echoer, error) {
	network := "ip4:icmp"
	if from.Addr.Is6() {
		network = "ip6:ipv6-icmp"
	}
	e := &echoer{from: from, id: id, start: start}
	err := from.NS.Do(func() (err error) {
		e.conn, err = net.ListenPacket(network, from.Addr.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: open an ICMP socket: %w", from.Name, err)
	}
	if c, ok := e.conn.(syscall.Conn); ok {
		if err := widen(c); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: ICMP socket: %w", from.Name, err), e.conn.Close())
		}
	}
	for _, to := range ends {
		e.results = append(e.results, EchoResult{From: from.Name, To: to.Name})
		e.rtts = append(e.rtts, make([]time.Duration, plan.Count))
	}
	return e, nil
}

func (e *echoer) send(ctx context.Context, ends []Endpoint, plan EchoPlan) {
	// Requests are spread over the interval, so that they do not queue behind each other.
	gap := plan.Interval / time.Duration(len(ends))
	tick := time.NewTicker(max(gap, 100*time.Microsecond))
	defer tick.Stop()
	for n := range plan.Count {
		for i, to := range ends {
			if to.Addr == e.from.Addr {
				continue
			}
			e.mu.Lock()
			e.results[i].Sent++
			e.open++
			e.mu.Unlock()
			err := e.request(to.Addr, i, n)
			e.mu.Lock()
			if err != nil && e.results[i].Err == nil {
				e.results[i].Err = err
			}
			e.mu.Unlock()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (e *echoer) request(to netip.Addr, target, n int) error {
	payload := make([]byte, echoHead)
	binary.BigEndian.PutUint32(payload, uint32(target))
	binary.BigEndian.PutUint32(payload[4:], uint32(n))
	binary.BigEndian.PutUint64(payload[8:], uint64(time.Since(e.start)))
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(e.id), Seq: n & 0xffff, Data: payload}}
	if to.Is6() {
		m.Type = ipv6.ICMPTypeEchoRequest // the kernel fills in the checksum (RFC 3542 section 3.1)
	}
	b, err := m.Marshal(nil)
	if err != nil {
		return err
	}
	_, err = e.conn.WriteTo(b, &net.IPAddr{IP: to.AsSlice()})
	return err
}

// read takes answers until the deadline, and then those that are there.
func (e *echoer) read() {
	protocol := ipv4.ICMPTypeEcho.Protocol()
	if e.from.Addr.Is6() {
		protocol = ipv6.ICMPTypeEchoRequest.Protocol()
	}
	b := make([]byte, 64<<10)
	for last := false; ; {
		n, _, err := e.conn.ReadFrom(b)
		now := time.Since(e.start)
		if errors.Is(err, os.ErrDeadlineExceeded) && !last && e.waits() {
			last = true
			_ = e.conn.SetReadDeadline(time.Now().Add(look))
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about one of our requests, which counts as lost
		}
		m, err := icmp.ParseMessage(protocol, b[:n])
		if err != nil || m.Type != ipv4.ICMPTypeEchoReply && m.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		if echo, ok := m.Body.(*icmp.Echo); ok && echo.ID == int(e.id) && len(echo.Data) >= echoHead {
			e.answered(echo.Data, now)
		}
	}
}

func (e *echoer) answered(payload []byte, now time.Duration) {
	target, n := int(binary.BigEndian.Uint32(payload)), int(binary.BigEndian.Uint32(payload[4:]))
	rtt := now - time.Duration(binary.BigEndian.Uint64(payload[8:]))
	e.mu.Lock()
	defer e.mu.Unlock()
	if target < 0 || target >= len(e.rtts) || n < 0 || n >= len(e.rtts[target]) || rtt <= 0 ||
		e.rtts[target][n] != 0 {
		return // not ours, or a duplicate
	}
	e.rtts[target][n] = rtt
	if e.open--; e.open == 0 && e.sentAll {
		_ = e.conn.SetReadDeadline(time.Now())
	}
}

// waits reports whether a request has no answer yet.
func (e *echoer) waits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open > 0
}

// stop ends read when every request is answered, at the latest after wait.
func (e *echoer) stop(wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sentAll = true; e.open == 0 {
		wait = 0
	}
	_ = e.conn.SetReadDeadline(time.Now().Add(wait))
}

func (e *echoer) finish() []EchoResult {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []EchoResult
	for i, r := range e.results {
		if r.Sent == 0 {
			continue
		}
		for _, rtt := range e.rtts[i] {
			if rtt != 0 {
				r.RTT = append(r.RTT, rtt)
			}
		}
		r.Received = len(r.RTT)
		out = append(out, r)
	}
	return out
}

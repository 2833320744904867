package presence

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing/internal/kernel"
	"weft/routing/probe"
	"weft/routing/underlay"
)

// Alive asks over the underlay whether a node lives, for lease.Underlay. The node's kernel answers, so
// that a node whose weftd hangs, or has no store, counts as alive. It is safe for concurrent use.
type Alive struct {
	// Kernel is the namespace to ask from.
	Kernel *kernel.Kernel
	// From returns the underlay as it is at the moment.
	From func() underlay.Link
	// Port is the overlay's UDP port; 0 for none. A host that answers that nothing listens there is
	// no node any more, whoever has the address now.
	Port uint16
}

// Answers implements lease.Underlay. An address of this host is never another's.
func (v Alive) Answers(ctx context.Context, a lease.Attrs) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	answers := make(chan bool, 2)
	for _, addr := range []netip.Addr{a.PublicIP, a.PublicIPv6} {
		if addr.IsValid() {
			wg.Go(func() { answers <- v.answers(ctx, addr) })
		}
	}
	go func() { wg.Wait(); close(answers) }() // ends with the two
	for yes := range answers {
		if yes {
			return true
		}
	}
	return false
}

func (v Alive) answers(ctx context.Context, to netip.Addr) bool {
	if here, err := v.Kernel.AddrInfos(); err != nil || slices.ContainsFunc(here, func(i kernel.AddrInfo) bool {
		return i.Addr == to
	}) {
		return false
	}
	from := v.From().Addr4
	if to.Is6() {
		from = v.From().Addr6
	}
	if !from.IsValid() || !v.echo(ctx, from, to) {
		return false
	}
	return !v.refuses(ctx, from, to)
}

// echoEvery is the time between two echo requests, and portWait how long we wait for a refusal.
const (
	echoEvery = 400 * time.Millisecond
	portWait  = 300 * time.Millisecond
)

// echo asks until there is an answer or ctx ends. Without a right to ICMP sockets it asks for a
// TCP connection, which a living kernel refuses.
func (v Alive) echo(ctx context.Context, from, to netip.Addr) bool {
	var s probe.EchoSocket
	if err := v.Kernel.Do(func() (err error) { s, err = probe.ListenEcho(to.Is6()); return err }); err != nil {
		return v.tcp(ctx, from, to)
	}
	nonce, answered := probe.Unguessable(), make(chan struct{}, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		s.Read(func(_ netip.Addr, n uint64) {
			if n == nonce {
				select {
				case answered <- struct{}{}:
				default:
				}
			}
		}, func(probe.SendError) {}) // an unreachable host is a silent one
	})
	defer reading.Wait()
	defer s.Close()
	for {
		_ = s.Send(from, to, nonce, 0)
		select {
		case <-answered:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(echoEvery):
		}
	}
}

// dial opens a socket towards the node's port in the namespace.
func (v Alive) dial(ctx context.Context, network string, from net.Addr, to netip.Addr,
	port uint16) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: from}
	err = v.Kernel.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, netip.AddrPortFrom(to, port).String())
		return err
	})
	return c, err
}

// tcp reports whether a kernel answers a request for a connection, in whatever way.
func (v Alive) tcp(ctx context.Context, from, to netip.Addr) bool {
	c, err := v.dial(ctx, "tcp", &net.TCPAddr{IP: from.AsSlice()}, to, max(v.Port, 1))
	if err == nil {
		return c.Close() == nil
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// refuses reports whether the host says that nothing listens on the overlay's port. Datagrams to it are no
// packets of any overlay.
func (v Alive) refuses(ctx context.Context, from, to netip.Addr) bool {
	if v.Port == 0 {
		return false
	}
	c, err := v.dial(ctx, "udp", &net.UDPAddr{IP: from.AsSlice()}, to, v.Port)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }() // nothing was written that a close could lose
	if _, err = c.Write([]byte{0}); err == nil {
		if err = c.SetReadDeadline(time.Now().Add(portWait)); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

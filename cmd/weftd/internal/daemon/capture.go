package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/pcapfilter"
	"weft/lease"
	"weft/tunnel"
	"weft/tunnel/port"
)

// capturePause is the time between two looks at what workers have copied, so that they need not wake the
// reader.
const capturePause = 20 * time.Millisecond

// captureSource has the packets of a capture.
type captureSource interface {
	// next returns a packet, whose data are borrowed until the next call; false if there is none now.
	next() (control.CapturedPacket, bool, error)
	missed() uint64
	close()
}

// captures shows packets to those who ask for them.
type captures struct {
	current func() (*overlay, string)
	kernel  atomic.Int32 // how many there are of packets that the kernel moves
}

// Capture implements control.Capturer.
func (c *captures) Capture(ctx context.Context, r control.CaptureRequest, w control.CaptureWriter) error {
	if !r.Inner && !r.Outer && !r.Dropped {
		r.Inner, r.Dropped = true, true
	}
	if r.SnapLen <= 0 || r.SnapLen > port.MaxPacket {
		r.SnapLen = port.MaxPacket
	}
	filter, err := pcapfilter.Compile(r.Filter)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	g, waiting := c.current()
	if g == nil {
		return fmt.Errorf("%w: there is no overlay yet: %s", control.ErrRefused, waiting)
	}
	peer, err := g.captureOf(r.Peer)
	if err != nil {
		return err
	}
	var source captureSource
	if g.plane != nil {
		source, err = g.carriedCapture(r, filter, peer)
	} else {
		source, err = c.ofKernel(g, r, peer)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRefused, err)
	}
	defer source.close()
	if r.Seconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Seconds*float64(time.Second)))
		defer cancel()
	}
	return pump(ctx, source, r, w)
}

// errStops is the end of a capture that nobody asked for: weftd ends. (Where the reader has gone, nobody
// hears it.)
var errStops = errors.New("weftd stops: capture again when it is back")

// pump writes packets until ctx ends, or as many as were asked for. The error says that it ended before its
// time, which is ctx's deadline.
func pump(ctx context.Context, source captureSource, r control.CaptureRequest,
	out control.CaptureWriter) error {
	var received, told uint64
	count := func() error { return out.Write(control.Captured{Received: received, Missed: source.missed()}) }
	if err := count(); err != nil {
		return err
	}
	out.Flush() // so that the reader knows that it has begun
	tick := time.NewTicker(capturePause)
	defer tick.Stop()
	for ctx.Err() == nil && (r.Count == 0 || received < r.Count) {
		p, ok, err := source.next()
		if err != nil {
			return err
		}
		if ok {
			received++
			if err := out.Write(control.Captured{Packet: &p}); err != nil {
				return err
			}
			continue
		}
		if missed := source.missed(); missed != told {
			told = missed
			if err := count(); err != nil {
				return err
			}
		}
		out.Flush()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	err := count()
	out.Flush()
	if err == nil && errors.Is(ctx.Err(), context.Canceled) && (r.Count == 0 || received < r.Count) {
		err = errStops
	}
	return err
}

// captured is the peer that a capture is of; nil for all.
type captured struct {
	name  string
	addrs []netip.Addr // on the underlay
	inner []netip.Prefix
}

// captureOf finds the peer that people call so: by name, identity, address or subnet.
func (g *overlay) captureOf(called string) (*captured, error) {
	if called == "" {
		return nil, nil
	}
	peers := g.peers()
	for _, r := range peers {
		names, addrs := recordNames(r), recordAddrs(r)
		a, err := netip.ParseAddr(called)
		inSubnet := err == nil && (r.V4.IsValid() && r.V4.Contains(a) || r.V6.IsValid() && r.V6.Contains(a))
		if slices.Contains(names, called) || err == nil && slices.Contains(addrs, a.Unmap()) || inSubnet {
			c := &captured{name: names[0], addrs: addrs}
			for _, n := range []netip.Prefix{r.V4, r.V6} {
				if n.IsValid() {
					c.inner = append(c.inner, n.Masked())
				}
			}
			return c, nil
		}
	}
	return nil, fmt.Errorf("peer %q: none of the %d peers has that name, identity, address or subnet (weft "+
		"peers lists them): %w", called, len(peers), control.ErrNotFound)
}

// recordNames are what a record's node is called, the best name first.
func recordNames(r lease.Record) (l []string) {
	if r.Kube != nil {
		l = append(l, r.Kube.Name)
	}
	if r.Weft != nil && r.Weft.Name != "" {
		l = append(l, r.Weft.Name)
	}
	if n := r.Node(); n != "" {
		l = append(l, n)
	}
	for _, n := range []netip.Prefix{r.V4, r.V6} {
		if n.IsValid() {
			l = append(l, n.String())
		}
	}
	return append(l, "")
}

// recordAddrs are the outer addresses of a record's node.
func recordAddrs(r lease.Record) (l []netip.Addr) {
	for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
		if a.IsValid() {
			l = append(l, a.Unmap())
		}
	}
	if r.Weft != nil {
		for _, a := range r.Weft.Addrs {
			l = append(l, a.Unmap())
		}
	}
	return l
}

// errPlaneEnded says that the data plane that is captured from has ended, as for another network
// configuration.
var errPlaneEnded = errors.New("the data plane was replaced, or ends: capture again")

// planeCapture is a capture in weft's own data plane.
type planeCapture struct {
	*tunnel.Capture
	names map[netip.Addr]string // what people call the peers that there were at the start
}

func (g *overlay) carriedCapture(r control.CaptureRequest, filter *pcapfilter.Filter,
	peer *captured) (captureSource, error) {
	o := tunnel.CaptureOptions{Inner: r.Inner, Outer: r.Outer, Dropped: r.Dropped, SnapLen: r.SnapLen}
	if r.Filter != "" {
		o.Match = filter.Match
	}
	if peer != nil {
		o.Peers = peer.addrs
	}
	c, err := g.plane.Engine().Capture(o)
	if err != nil {
		return nil, err
	}
	names := map[netip.Addr]string{}
	for _, record := range g.peers() {
		for _, a := range recordAddrs(record) {
			names[a] = recordNames(record)[0]
		}
	}
	return planeCapture{c, names}, nil
}

func (c planeCapture) next() (control.CapturedPacket, bool, error) {
	p, ok := c.Next()
	if !ok && c.Ended() {
		if p, ok = c.Next(); !ok { // what was copied meanwhile is read all the same
			return control.CapturedPacket{}, false, errPlaneEnded
		}
	}
	if !ok {
		return control.CapturedPacket{}, false, nil
	}
	out := control.CapturedPacket{
		Time: p.Time, Outbound: p.Outbound, Peer: cmp.Or(c.names[p.Addr.Addr()], p.Peer), Address: p.Addr.Addr(),
		Segments: p.Segments, SegmentSize: p.SegmentSize, Length: p.Length, Data: p.Data,
	}
	if p.Dropped {
		out.Dropped, out.Admit = p.Reason.String(), p.Reason.Admit()
	}
	return out, true, nil
}

func (c planeCapture) missed() uint64 { return c.Missed() }
func (c planeCapture) close()         { c.Close() }

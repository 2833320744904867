package tunnel_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"weft/encap"
	"weft/test/await"
	"weft/tunnel"
	"weft/tunnel/port"
	"weft/tunnel/tunneltest"
)

// TestCaptureShowsWhatBecameOfPackets sends packets of every fate, and sees each once, with it.
func TestCaptureShowsWhatBecameOfPackets(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 2})
	c, err := n.Capture(tunnel.CaptureOptions{Inner: true, Outer: true, Dropped: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out, in := udp4(t, "10.1.1.5", "10.1.2.7", 9, nil), udp4(t, "10.1.2.7", "10.1.1.5", 9, nil)
	lost := udp4(t, "10.1.1.5", "10.1.9.7", 9, nil)
	stranger := udp4(t, "10.1.3.7", "10.1.1.5", 9, nil)
	var got []string
	expect := func(want ...string) {
		t.Helper()
		await.True(t, fmt.Sprintf("%q captured", want), func() bool {
			for p, more := c.Next(); more; p, more = c.Next() {
				got = append(got, describe(t, p, out, in, lost, stranger))
			}
			return len(got) >= len(want)
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		got = nil
	}
	n.host.Inject(tunneltest.Datagram{Data: out})
	expect("in→b inner outbound", "in→b outer outbound 192.0.2.1:8285>192.0.2.2:8285")
	n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: in})
	expect("b→in inner", "b→in outer 192.0.2.2:8285>192.0.2.1:8285")
	n.host.Inject(tunneltest.Datagram{Data: lost})
	expect("lost inner outbound dropped no_route", "icmp inner")
	n.wire.Inject(tunneltest.Datagram{Outer: outer("203.0.113.9"), Data: stranger})
	expect("stranger outer 203.0.113.9:8285>192.0.2.1:8285",
		"stranger outer dropped unknown_peer 203.0.113.9:8285>192.0.2.1:8285")
	n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: stranger})
	expect("stranger outer 192.0.2.2:8285>192.0.2.1:8285", "stranger inner dropped foreign_source")
	// To and from addresses for which no router forwards (RFC 1812 section 5.3.7).
	stranger = udp4(t, "127.0.0.1", "10.1.1.5", 9, nil)
	n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: stranger})
	expect("stranger outer 192.0.2.2:8285>192.0.2.1:8285", "stranger inner dropped martian")
	lost = udp4(t, "10.1.1.5", "127.0.0.1", 9, nil)
	n.host.Inject(tunneltest.Datagram{Data: lost})
	expect("lost inner outbound dropped martian")
	if c.Missed() != 0 {
		t.Errorf("%d missed", c.Missed())
	}
}

// describe names a packet of those that were sent, and what a capture says of it.
func describe(t *testing.T, p tunnel.Captured, out, in, lost, stranger []byte) string {
	t.Helper()
	inner, s, route := p.Data, "", ""
	if p.Outer {
		h, err := encap.ParseInner(p.Data)
		if err != nil {
			t.Fatalf("outer header: %v", err)
		}
		l4 := p.Data[h.L4:]
		route = fmt.Sprintf(" %v:%d>%v:%d", h.Src, int(l4[0])<<8|int(l4[1]), h.Dst, int(l4[2])<<8|int(l4[3]))
		inner = p.Data[h.L4+encap.UDPLen:]
	}
	switch {
	case bytes.Equal(inner, out):
		s = "in→b"
	case bytes.Equal(inner, in):
		s = "b→in"
	case bytes.Equal(inner, lost):
		s = "lost"
	case bytes.Equal(inner, stranger):
		s = "stranger"
	case len(inner) > 20 && inner[9] == encap.ProtoICMP:
		s = "icmp"
	default:
		s = fmt.Sprintf("%x", inner)
	}
	if p.Outer {
		s += " outer"
	} else {
		s += " inner"
	}
	if p.Outbound {
		s += " outbound"
	}
	if p.Dropped {
		s += " dropped " + p.Reason.String()
	}
	if known := p.Addr.Addr() == addr("192.0.2.2"); known && p.Peer != "b" {
		t.Errorf("%s: of peer %q", s, p.Peer)
	}
	return s + route
}

// TestCaptureTakesWhatIsAskedFor selects by kind, peer, filter and length.
func TestCaptureTakesWhatIsAskedFor(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 1})
	packet := udp4(t, "10.1.1.5", "10.1.2.7", 100, nil)
	for name, tt := range map[string]struct {
		o    tunnel.CaptureOptions
		want int // bytes of the one packet; -1 for none
	}{
		"inner":        {tunnel.CaptureOptions{Inner: true}, len(packet)},
		"outer":        {tunnel.CaptureOptions{Outer: true}, len(packet) + 28},
		"dropped":      {tunnel.CaptureOptions{Dropped: true}, -1},
		"its peer":     {tunnel.CaptureOptions{Inner: true, Peers: []netip.Addr{addr("192.0.2.2")}}, len(packet)},
		"another peer": {tunnel.CaptureOptions{Inner: true, Peers: []netip.Addr{addr("192.0.2.3")}}, -1},
		"a match": {tunnel.CaptureOptions{Outer: true, Match: func(b []byte) bool {
			return len(b) == len(packet)+28
		}}, len(packet) + 28},
		"no match":    {tunnel.CaptureOptions{Inner: true, Match: func([]byte) bool { return false }}, -1},
		"short":       {tunnel.CaptureOptions{Inner: true, SnapLen: 40}, 40},
		"short outer": {tunnel.CaptureOptions{Outer: true, SnapLen: 40}, 40},
	} {
		c, err := n.Capture(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		before := n.Stats().Egress.Received
		n.host.Inject(tunneltest.Datagram{Data: packet})
		settled(t, n, before+1)
		p, ok := c.Next()
		if ok != (tt.want >= 0) || ok && len(p.Data) != tt.want || ok && p.Length < len(packet) {
			t.Errorf("%s: got %v %d bytes of %d, want %d", name, ok, len(p.Data), p.Length, tt.want)
		}
		c.Close()
	}
	if _, err := n.Capture(tunnel.CaptureOptions{}); err == nil {
		t.Error("a capture of nothing begins")
	}
}

// TestCaptureOfWhatCannotBeFragmented: a packet whose fragments find no room is shown with the peer that it
// was for.
func TestCaptureOfWhatCannotBeFragmented(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 1})
	c, err := n.Capture(tunnel.CaptureOptions{Dropped: true, Peers: []netip.Addr{addr("192.0.2.4")}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	small := udp4(t, "10.1.1.5", "10.1.4.7", 9, nil)
	for range 300 { // more than the wire's port holds
		for !n.host.Inject(tunneltest.Datagram{Data: small}) {
			runtime.Gosched()
		}
	}
	settled(t, n, 300)
	large := udp4(t, "10.1.1.5", "10.1.4.7", 1400, func(ip *layers.IPv4) { ip.Flags = 0 })
	n.host.Inject(tunneltest.Datagram{Data: large})
	await.OK(t, "the large one is shown", func() error {
		for p, ok := c.Next(); ok; p, ok = c.Next() {
			if p.Length == len(large) && p.Addr == outer("192.0.2.4") && p.Reason == port.DropBusy {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

// TestCaptureNeverHoldsTrafficUp has a reader that does not read: packets pass, and what it misses is
// counted. Whoever comes after a capture that ended finds room.
func TestCaptureNeverHoldsTrafficUp(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 1})
	var all []*tunnel.Capture
	for range tunnel.MaxCaptures {
		c, err := n.Capture(tunnel.CaptureOptions{Inner: true, Dropped: true}) // the wire may be full for a moment
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := n.Capture(tunnel.CaptureOptions{Inner: true}); !errors.Is(err, tunnel.ErrTooManyCaptures) {
			t.Fatalf("one capture more: %v", err)
		}
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("100 captures that were refused took %d bytes", after.TotalAlloc-before.TotalAlloc)
	}
	packet := udp4(t, "10.1.1.5", "10.1.2.7", 1300, nil)
	const many = 6000
	for sent := range uint64(many) {
		await.True(t, fmt.Sprintf("packet %d injected", sent), func() bool {
			n.wire.Discard() // else it is full
			return n.host.Inject(tunneltest.Datagram{Data: packet})
		})
	}
	s := settled(t, n, many)
	balanced(t, s)
	if s.Egress.Received != many {
		t.Errorf("%d of %d packets were received", s.Egress.Received, many)
	}
	read := uint64(0)
	for p, ok := all[0].Next(); ok; p, ok = all[0].Next() {
		if read++; !bytes.Equal(p.Data, packet) || time.Since(p.Time) > time.Hour {
			t.Fatalf("packet %d is not as it was sent", read)
		}
	}
	if missed := all[0].Missed(); read == 0 || missed == 0 || read+missed != many {
		t.Errorf("%d read and %d missed of %d", read, missed, many)
	}
	for _, c := range all {
		c.Close()
		c.Close() // for once more, nothing
	}
	if c, err := n.Capture(tunnel.CaptureOptions{Inner: true}); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

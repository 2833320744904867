package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
)

// What ICMP says of a datagram reaches the port that sent it, with who says it.
func TestSocketIsToldThatNothingListens(t *testing.T) {
	for _, c := range []struct{ local, to string }{{"127.0.0.1:0", "127.0.0.2"}, {"[::1]:0", "::1"}} {
		s, err := ListenUDP(UDPOptions{Local: netip.MustParseAddrPort(c.local)})
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddr(c.to)
		var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.As16(), Port: 9}
		if to.Is4() {
			sa = &unix.SockaddrInet4{Addr: to.As4(), Port: 9}
		}
		var got []sendError
		await.True(t, "the message about "+c.to, func() bool {
			// the kernel's budget of such messages is that of all tests on this host
			if err := unix.Sendto(s.fd, []byte("nobody"), 0, sa); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			s.readErrors(time.Now().UnixNano(), func(e sendError) { got = append(got, e) })
			return len(got) > 0
		})
		if e := got[0]; e.why != UnreachablePort || e.by != to || e.dst != to || e.tooBig {
			t.Errorf("%s: got %+v", c.to, e)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnreachableByTypeAndCode(t *testing.T) {
	for _, c := range []struct {
		six        bool
		kind, code byte
		want       UnreachableWhy
	}{
		{false, 3, 0, UnreachableNet}, {false, 3, 1, UnreachableHost}, {false, 3, 3, UnreachablePort},
		{false, 3, 4, 0}, {false, 3, 13, UnreachableProhibited},
		{false, 3, 2, UnreachableProtocol}, {false, 3, 5, UnreachableOther}, {false, 11, 0, 0}, {false, 1, 4, 0},
		{true, 1, 0, UnreachableNet}, {true, 1, 1, UnreachableProhibited}, {true, 1, 3, UnreachableHost},
		{true, 1, 4, UnreachablePort}, {true, 1, 2, UnreachableOther},
		{true, 2, 0, 0}, {true, 3, 0, 0},
	} {
		if got := whyOf(c.six, c.kind, c.code); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// A peer's messages are counted, shown with the last one, and written once as long as they say the same;
// those about nobody are not.
func TestUnreachablePeerIsSaidOnce(t *testing.T) {
	h := &heard{}
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1, Logger: slog.New(h)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() { _ = e.Run(ctx) }() // frees what New opened
	w := e.workers[0]
	if w.table, err = NewTable(encap.FormatIP, testSpec()); err != nil {
		t.Fatal(err)
	}
	peer := w.table.peers[0]
	router := netip.MustParseAddr("203.0.113.254")
	w.now = int64(time.Hour)
	tell := func(to, by netip.Addr, why UnreachableWhy, times int) {
		for range times {
			w.now += int64(10 * time.Millisecond)
			w.onSendError(sendError{dst: to, by: by, why: why})
		}
	}
	tell(peer.spec.Addr, router, UnreachableProhibited, 100)
	tell(netip.MustParseAddr("203.0.113.77"), router, UnreachableHost, 100)
	u := peer.stats(w.now).Unreachable
	if u.Count != 100 || u.By != router || u.Why != UnreachableProhibited || u.Last.IsZero() || h.lines != 0 {
		t.Errorf("a restart's worth: got %+v, and %d lines", u, h.lines)
	}
	w.now += int64(refusalLasts)
	tell(peer.spec.Addr, router, UnreachableProhibited, 100)
	if h.lines != 1 {
		t.Errorf("after a while: %d lines", h.lines)
	}
	w.now += int64(2 * time.Second)
	tell(peer.spec.Addr, peer.spec.Addr, UnreachablePort, 1)
	if u = peer.stats(w.now).Unreachable; u.By != peer.spec.Addr || u.Why != UnreachablePort || h.lines != 2 {
		t.Errorf("another one: got %+v, and %d lines", u, h.lines)
	}
	w.now += int64(2 * refusalOver)
	tell(peer.spec.Addr, peer.spec.Addr, UnreachablePort, 1)
	if h.lines != 2 {
		t.Errorf("once more, long after: %d lines", h.lines)
	}
	w.now += int64(refusalLasts)
	tell(peer.spec.Addr, peer.spec.Addr, UnreachablePort, 1)
	if h.lines != 3 {
		t.Errorf("again for a while: %d lines", h.lines)
	}
	// What is doubtful is no news, and becomes news as soon as it is not doubtful any more.
	var r refusal
	said, now := refusedBy{peer.spec.Addr, UnreachablePort}, int64(time.Hour)
	for i := range 100 {
		now += int64(time.Second)
		if news := r.note(said, true, now); news {
			t.Errorf("after %d s what is doubtful is news", i)
		}
	}
	if !r.note(said, false, now+1) || r.note(said, false, now+2) {
		t.Error("what is not doubtful any more is no news, or is news twice")
	}
	if n := testing.AllocsPerRun(100, func() {
		peer.state.refusal.note(refusedBy{router, UnreachableHost}, false, w.now)
	}); n > 0.02 {
		t.Errorf("%v allocations a message", n)
	}
}

package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"weft/tunnel/port"
)

// A peer's messages are counted, shown with the last one, and written once as long as they say the same;
// those about nobody are not.
func TestUnreachablePeerIsSaidOnce(t *testing.T) {
	w, h := heardWorker(t, testSpec())
	peer := w.table.peers[0]
	router := netip.MustParseAddr("203.0.113.254")
	w.now = int64(time.Hour)
	tell := func(to, by netip.Addr, why port.UnreachableWhy, times int) {
		for range times {
			w.now += int64(10 * time.Millisecond)
			w.onSendError(port.SendError{Dst: to, By: by, Why: why})
		}
	}
	tell(peer.spec.Addr, router, port.UnreachableProhibited, 100)
	tell(netip.MustParseAddr("203.0.113.77"), router, port.UnreachableHost, 100)
	u := peer.stats(w.now).Unreachable
	if u.Count != 100 || u.By != router || u.Why != port.UnreachableProhibited || u.Last.IsZero() ||
		h.lines != 0 {
		t.Errorf("a restart's worth: got %+v, and %d lines", u, h.lines)
	}
	w.now += int64(unreachableDelay)
	tell(peer.spec.Addr, router, port.UnreachableProhibited, 100)
	if h.lines != 1 {
		t.Errorf("after a while: %d lines", h.lines)
	}
	w.now += int64(2 * time.Second)
	tell(peer.spec.Addr, peer.spec.Addr, port.UnreachablePort, 1)
	if u = peer.stats(w.now).Unreachable; u.By != peer.spec.Addr || u.Why != port.UnreachablePort ||
		h.lines != 2 {
		t.Errorf("another one: got %+v, and %d lines", u, h.lines)
	}
	w.now += int64(2 * unreachableReset)
	tell(peer.spec.Addr, peer.spec.Addr, port.UnreachablePort, 1)
	if h.lines != 2 {
		t.Errorf("once more, long after: %d lines", h.lines)
	}
	w.now += int64(unreachableDelay)
	tell(peer.spec.Addr, peer.spec.Addr, port.UnreachablePort, 1)
	if h.lines != 3 {
		t.Errorf("again for a while: %d lines", h.lines)
	}
	// What is doubtful is no news, and becomes news as soon as it is not doubtful any more.
	var r unreachableState
	said, now := icmpReport{peer.spec.Addr, port.UnreachablePort}, int64(time.Hour)
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
		peer.state.unreachable.note(icmpReport{router, port.UnreachableHost}, false, w.now)
	}); n > 0.02 {
		t.Errorf("%v allocations a message", n)
	}
}

package probe

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Whoever can send ICMP to a node makes it believe for a moment that a way carries less, and not again.
func TestAClaimedMTUIsTried(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, 2, seed)
		w.meet(1472)
		w.run(time.Minute)
		me, peer := w.nodes[0], w.nodes[1]
		passes := func() bool { s := me.of(peer); return s.PathMTU == 1472 && !s.Hole }
		w.do(me, TooBig{peer.addr, 600})
		if passes() {
			t.Fatal("a claim is not believed at all")
		}
		if took := w.until(time.Minute, passes); took > 45*time.Second {
			t.Errorf("a claim that is not true was believed for %v", took)
		}
		w.do(me, TooBig{peer.addr, 700})
		if !passes() {
			t.Error("after one that was not true, the next is believed")
		}
		w.lost = func(_, _ *node, size int) bool { return size > 1372 }
		w.run(11 * time.Minute)
		w.do(me, TooBig{peer.addr, 1372})
		w.run(time.Minute)
		if s := me.of(peer); s.PathMTU != 1372 || s.Hole {
			t.Errorf("a claim that is true: %d bytes, %v", s.PathMTU, s.Hole)
		}
	}
}

// The round trip is that of the way, not the time for which a peer was frozen.
func TestAFrozenPeersAnswersAreNoRoundTrip(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.meet(1472)
	w.run(time.Minute)
	me, peer := w.nodes[0], w.nodes[1]
	late := me.core.ways[peer.addr]
	peer.frozen = true
	w.run(40 * time.Second)
	peer.frozen = false
	q := late.asked[slices.IndexFunc(late.asked, func(q asked) bool { return !q.at.IsZero() })]
	b, err := Datagram{Kind: Answer, Session: late.in.session, Nonce: q.nonce, Length: Size}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.do(me, Heard{netip.AddrPortFrom(peer.addr, simPort), b})
	if s := me.of(peer); s.Answers != Yes || s.RTT > 3*w.delay {
		t.Errorf("%v, the round trip is %v", s.Answers, s.RTT)
	}
}

package probe

import (
	"strings"
	"testing"
	"time"
)

// A node that is hardly run reads answers late and loses some: of its peers it says nothing for that, and
// afterwards it says what is so.
func TestAStarvedNodeBlamesNobody(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, 5, seed)
		w.nodes[4].flannel = true
		w.meet(1472)
		w.run(5 * time.Minute)
		me := w.nodes[0]
		me.slow = 15 * time.Second
		w.lost = func(a, b *node, _ int) bool { return (a == me || b == me) && w.rng.IntN(3) == 0 }
		for range 30 {
			me.stalled = w.now.Add(2*time.Second + time.Duration(w.rng.IntN(4000))*time.Millisecond)
			w.run(me.stalled.Sub(w.now) + 20*time.Millisecond)
		}
		me.slow, w.lost = 0, func(*node, *node, int) bool { return false }
		for i := range w.mail { // what has waited comes
			w.mail[i].at = w.now.Add(time.Second)
		}
		w.run(5 * time.Minute)
		if len(me.lines) > 0 {
			t.Fatalf("it says %v", me.lines)
		}
		for _, s := range me.core.States() {
			if s.Answers != Yes || s.Lossy || s.Hole || s.Out.Lost > 0 || s.In.Lost > 0 || s.Out.Of == 0 ||
				s.RTT > 3*w.delay {
				t.Errorf("of %s: %+v", s.Peer, s)
			}
		}
		w.nodes[1].gone = true
		w.run(time.Minute)
		if len(me.lines) != 1 || !strings.Contains(me.lines[0].Text, "n1") {
			t.Errorf("of a peer that is gone it says %v", me.lines)
		}
	}
}

// Whoever was stopped for once has no word about it either, whatever waits for it.
func TestAStoppedNodeBlamesNobody(t *testing.T) {
	for _, stop := range []time.Duration{3 * time.Second, 5 * time.Second, 12 * time.Second, 40 * time.Second,
		10 * time.Minute} {
		w := newWorld(t, 4, uint64(stop))
		w.meet(1472)
		w.run(5 * time.Minute)
		me := w.nodes[0]
		waiting := 0
		w.lost = func(_, b *node, _ int) bool { // the queues are full
			waiting++
			return b == me && w.now.Before(me.stalled) && waiting > 10
		}
		me.stalled = w.now.Add(stop)
		w.run(stop + 5*time.Minute)
		if len(me.lines) > 0 {
			t.Errorf("after %v it says %v", stop, me.lines)
		}
		for _, s := range me.core.States() {
			if s.Answers != Yes || s.Lossy || s.Out.Lost > 0 || s.In.Lost > 0 || s.RTT > 3*w.delay {
				t.Errorf("after %v, of %s: %+v", stop, s.Peer, s)
			}
		}
	}
}

// That a node is busy does not keep it from seeing that a peer is gone, and what loses packets is not said to
// be well for a stop.
func TestABusyNodeStillSees(t *testing.T) {
	w := newWorld(t, 4, 1)
	w.meet(1472)
	w.run(5 * time.Minute)
	me := w.nodes[0]
	w.nodes[1].gone = true
	w.lost = func(a, b *node, _ int) bool { return a == me && b == w.nodes[2] && w.rng.IntN(3) == 0 }
	for range 60 {
		me.stalled = w.now.Add(700 * time.Millisecond)
		w.run(time.Second)
	}
	w.run(3 * time.Minute)
	if len(me.lines) != 2 || !me.of(w.nodes[2]).Lossy {
		t.Fatalf("it says %v", me.lines)
	}
	me.stalled = w.now.Add(15 * time.Second)
	w.run(time.Minute)
	if len(me.lines) != 2 {
		t.Errorf("after a stop it says %v", me.lines)
	}
}

// A stop is noticed although nobody was about to be asked.
func TestAStopIsNoticedInBetween(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.meet(1472)
	w.run(5 * time.Minute)
	me := w.nodes[0]
	for range 50 {
		w.run(time.Duration(w.rng.IntN(20)) * time.Second)
		me.stalled = w.now.Add(5 * time.Second)
		w.run(me.stalled.Sub(w.now) + time.Millisecond)
		if me.core.blind.IsZero() {
			t.Fatal("a stop of five seconds is not noticed")
		}
	}
}

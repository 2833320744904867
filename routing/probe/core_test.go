package probe

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"weft/routing/event"
	"weft/tunnel/port"
)

func TestHealthyNodesKnowAllAndSayNothing(t *testing.T) {
	w := newWorld(t, 5, 1)
	w.nodes[4].flannel = true
	w.meet(1472)
	w.run(10 * time.Minute)
	for _, n := range w.nodes[:4] {
		if len(n.lines) > 0 {
			t.Errorf("%s says %v", n.name, n.lines)
		}
		for _, s := range n.core.States() {
			if s.Answers != Yes || s.RTT != 2*w.delay || s.MinRTT != 2*w.delay || s.PathMTU != 1472 || s.Hole ||
				s.Lossy || s.Fact != "" ||
				s.Out.Lost != 0 || s.In.Lost != 0 || s.Out.Of == 0 || (s.In.Of == 0) != (s.Peer == "n4") {
				t.Errorf("%s of %s: %+v", n.name, s.Peer, s)
			}
		}
		// Four peers in ten minutes, at two questions in ten seconds, one large one in twenty, and answers to
		// three.
		if got := len(n.sent); got > 1100 {
			t.Errorf("%s sent %d datagrams in ten minutes", n.name, got)
		}
	}
}

// A fault is seen within half a minute, said once with its cause, and gone within a minute after it was
// mended.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		do      func(*world)
		undo    func(*world)
		seen    func(s State) bool // by n0 of n1
		event   port.EventKind
		silence Silence // NoSilence of one that answers
	}{
		{name: "both directions dropped",
			do: func(w *world) {
				w.lost = func(a, b *node, _ int) bool { return a == w.nodes[1] || b == w.nodes[1] }
			},
			seen: func(s State) bool { return s.Answers == No }, event: port.EventPeerUnanswering,
			silence: UnderlayOnly},
		{name: "dropped towards it",
			do: func(w *world) {
				w.lost = func(a, b *node, _ int) bool { return a == w.nodes[0] && b == w.nodes[1] }
			},
			seen: func(s State) bool { return s.Answers == No }, event: port.EventPeerUnanswering,
			silence: HeardOnly},
		{name: "host down",
			do: func(w *world) { w.nodes[1].gone = true }, undo: func(w *world) { w.nodes[1].gone = false },
			seen: func(s State) bool { return s.Answers == No }, event: port.EventPeerUnanswering, silence: Nothing},
		{name: "daemon frozen that carries",
			do: func(w *world) { w.nodes[1].frozen = true }, undo: func(w *world) { w.nodes[1].frozen = false },
			seen: func(s State) bool { return s.Answers == No }, event: port.EventPeerUnanswering,
			silence: UnderlayOnly},
		{name: "daemon frozen beside the kernel",
			do: func(w *world) { w.nodes[1].frozen, w.kernel = true, true }, undo: func(w *world) {
				w.nodes[1].frozen = false
			},
			seen: func(s State) bool { return s.Answers == No }, event: port.EventPeerUnanswering,
			silence: KernelOnly},
		{name: "a third lost towards it",
			do: func(w *world) {
				w.lost = func(a, b *node, _ int) bool {
					return a == w.nodes[0] && b == w.nodes[1] && w.rng.IntN(10) < 3
				}
			},
			seen:  func(s State) bool { return s.Lossy && s.Out.Share() > 0.1 && s.In.Lost == 0 },
			event: event.PeerLossy},
		{name: "large ones lost",
			do: func(w *world) {
				w.lost = func(a, b *node, size int) bool { return b == w.nodes[1] && size > 1372 }
			},
			seen:  func(s State) bool { return s.Hole && s.PathMTU <= 1372 && s.PathMTU > 1372-fineness },
			event: event.PeerLossy},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				w := newWorld(t, 4, seed)
				w.meet(1472)
				w.run(2*time.Minute + time.Duration(w.rng.IntN(20000))*time.Millisecond)
				me, peer := w.nodes[0], w.nodes[1]
				c.do(w)
				took := w.until(45*time.Second, func() bool { return c.seen(me.of(peer)) })
				if took > 30*time.Second {
					t.Logf("seed %d: seen after %v", seed, took)
				}
				w.run(20 * time.Second)
				if len(me.lines) != 1 || !me.lines[0].Warn || me.lines[0].Event != c.event ||
					!strings.Contains(me.lines[0].Text, "n1") || me.lines[0].Fact == "" || me.of(peer).Silence != c.silence {
					t.Fatalf("seed %d: said %+v", seed, me.lines)
				}
				w.run(2 * time.Minute)
				if len(me.lines) != 1 {
					t.Fatalf("seed %d: said more: %+v", seed, me.lines[1:])
				}
				w.lost = func(*node, *node, int) bool { return false }
				if c.undo != nil {
					c.undo(w)
				}
				w.until(2*time.Minute, func() bool {
					s := me.of(peer)
					return s.Answers == Yes && !s.Lossy && !s.Hole && s.PathMTU == 1472
				})
				w.run(30 * time.Second)
				if len(me.lines) != 2 || me.lines[1].Event != c.event || me.lines[1].Warn {
					t.Fatalf("seed %d: said afterwards %+v", seed, me.lines[1:])
				}
				for _, n := range w.nodes[2:] {
					if c.name != "large ones lost" && len(n.lines) > 0 && !strings.Contains(n.lines[0].Text, "n1") {
						t.Errorf("%s, which it does not concern, says %+v", n.name, n.lines)
					}
				}
			}
		})
	}
}

// A hole on the way to a node with an address in each family is one line, and so is its end.
func TestTwoWaysOfAPeerAreOneLine(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, 3, seed)
		me, peer, same := w.nodes[0], w.nodes[1], w.nodes[2]
		same.name, same.under = peer.name, peer.under
		w.meet(1472)
		w.run(time.Minute + time.Duration(w.rng.IntN(20000))*time.Millisecond)
		w.lost = func(a, b *node, size int) bool { return a == me && size > 1372 }
		w.run(time.Minute)
		if len(me.lines) != 1 || !me.lines[0].Warn || me.lines[0].Event != event.PeerLossy {
			t.Fatalf("seed %d: %+v", seed, me.lines)
		}
		w.lost = func(*node, *node, int) bool { return false }
		w.run(time.Minute)
		if len(me.lines) != 2 || me.lines[1].Event != event.PeerLossy || me.lines[1].Warn {
			t.Errorf("seed %d: %+v", seed, me.lines[1:])
		}
	}
}

func TestABurstOfPeersIsOneLine(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, 12, seed)
		w.meet(1472)
		w.run(3 * time.Minute)
		me := w.nodes[0]
		w.lost = func(a, b *node, _ int) bool { return a == me || b == me }
		w.run(time.Minute)
		if len(me.lines) != 1 || !strings.Contains(me.lines[0].Text, "n1, n10, n11, n2, n3, …") ||
			me.lines[0].Fact == "" ||
			me.lines[0].Event != port.EventPeerUnanswering {
			t.Fatalf("seed %d: %+v", seed, me.lines)
		}
		w.lost = func(*node, *node, int) bool { return false }
		w.run(time.Minute)
		if len(me.lines) != 2 || me.lines[1].Event != port.EventPeerUnanswering || me.lines[1].Warn {
			t.Errorf("seed %d: %+v", seed, me.lines[1:])
		}
	}
}

// A weftd that is started again, a node that joins late and one whose record goes raise no alarm.
func TestRestartsAreNoFaults(t *testing.T) {
	for seed := range uint64(10) {
		w := newWorld(t, 4, seed)
		late := w.nodes[3]
		late.gone = true
		w.meet(1472)
		w.run(12 * time.Second)
		late.gone = false
		w.meet(1472)
		for range 10 {
			w.run(time.Duration(10+w.rng.IntN(40)) * time.Second)
			n := w.nodes[w.rng.IntN(4)]
			n.frozen = true
			w.run(time.Duration(w.rng.IntN(6000)) * time.Millisecond)
			n.frozen, n.core = false, NewCore(w.rng.Uint64)
			w.meet(1472)
		}
		w.run(time.Minute)
		for _, n := range w.nodes {
			if len(n.lines) > 0 {
				t.Errorf("seed %d: %s says %+v", seed, n.name, n.lines)
			}
		}
	}
}

// Five thousand peers are asked at no more than the ceiling, whether they answer or not.
func TestCeiling(t *testing.T) {
	for _, answer := range []bool{true, false} {
		c := NewCore(rand.New(rand.NewPCG(3, 3)).Uint64)
		now := time.Unix(1_700_000_000, 0)
		ways := make([]Way, 5000)
		for i := range ways {
			ways[i] = Way{Peer: netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)}).String(),
				Addr: netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)}), Port: simPort,
				Under: netip.AddrFrom4([4]byte{10, 9, byte(i / 256), byte(i)}), MTU: 1472}
		}
		var sent []time.Time
		asked := map[netip.Addr]int{}
		do := func(e Event) {
			for _, f := range slices.Clone(c.Step(now, e)) {
				switch f := f.(type) {
				case Send:
					sent = append(sent, now)
					asked[f.To.Addr()]++
					if d, err := Parse(f.Data); err == nil && answer {
						reply, _ := Datagram{Kind: Answer, Session: 1, Nonce: d.Nonce, Length: d.Length}.Append(nil)
						c.Step(now.Add(time.Millisecond), Heard{f.To, reply})
					}
				case Echo:
					sent = append(sent, now)
				}
			}
		}
		do(Known{ways})
		end := now.Add(10 * time.Minute)
		for now.Before(end) {
			now = c.Next()
			do(Tick{})
		}
		if len(asked) != len(ways) {
			t.Errorf("%d of %d were asked", len(asked), len(ways))
		}
		for i := range sent {
			if j := i + perSecond + burst + 10; j < len(sent) && sent[j].Sub(sent[i]) < time.Second {
				t.Fatalf("more than %d in a second", perSecond+burst)
			}
		}
		if len(sent) > 600*perSecond+burst+10 {
			t.Errorf("%d in ten minutes", len(sent))
		}
	}
}

func TestStrangersGetNoAnswer(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.nodes[2].flannel = true
	w.meet(1472)
	question, err := Datagram{Kind: Question, Session: 5, Seq: 1, Nonce: 9, Length: Size}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	answers := func(from netip.AddrPort, b []byte) (n int) {
		for _, f := range w.nodes[0].core.Step(w.now, Heard{from, b}) {
			if s, ok := f.(Send); ok {
				if d, err := Parse(s.Data); err == nil && d.Kind == Answer {
					n++
					if len(s.Data) > len(b) {
						t.Errorf("%d bytes are answered with %d", len(b), len(s.Data))
					}
				}
			}
		}
		return n
	}
	peer := w.nodes[1].addr
	for _, c := range []struct {
		name string
		from netip.AddrPort
		b    []byte
		want int
	}{
		{"a peer", netip.AddrPortFrom(peer, simPort), question, 1},
		{"another port of the peer", netip.AddrPortFrom(peer, simPort+1), question, 0},
		{"a pod of the peer", netip.AddrPortFrom(peer.Next(), simPort), question, 0},
		{"a flannel node", netip.AddrPortFrom(w.nodes[2].addr, simPort), question, 0},
		{"nobody", netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), simPort), question, 0},
		{"a peer, cut short", netip.AddrPortFrom(peer, simPort), question[:Size-1], 0},
		{"a peer, too long", netip.AddrPortFrom(peer, simPort), append(slices.Clone(question), 0), 0},
	} {
		if got := answers(c.from, c.b); got != c.want {
			t.Errorf("%s: %d answers", c.name, got)
		}
	}
	n := 0
	for range 10 * answersBurst {
		n += answers(netip.AddrPortFrom(peer, simPort), question)
	}
	if n > answersBurst {
		t.Errorf("a flood got %d answers at once", n)
	}
}

// Whatever happens, a core keeps within its bounds and does not panic.
func TestLives(t *testing.T) {
	for seed := range uint64(40) {
		w := newWorld(t, 2+int(seed%5), seed)
		r := w.rng
		w.meet(1472)
		for range 60 {
			switch r.IntN(8) {
			case 0:
				a, b := w.nodes[r.IntN(len(w.nodes))], w.nodes[r.IntN(len(w.nodes))]
				w.lost = func(x, y *node, _ int) bool { return x == a && y == b }
			case 1:
				p, m := r.Float64(), 300+r.IntN(1500)
				w.lost = func(_, _ *node, size int) bool { return r.Float64() < p || size > m }
			case 2:
				w.lost = func(*node, *node, int) bool { return false }
			case 3:
				n := w.nodes[r.IntN(len(w.nodes))]
				n.frozen = !n.frozen
			case 4:
				n := w.nodes[r.IntN(len(w.nodes))]
				n.core = NewCore(r.Uint64)
				w.meet(1472)
			case 5:
				w.meet(576 + r.IntN(9000))
			case 6:
				n := w.nodes[r.IntN(len(w.nodes))]
				w.do(n, Known{})
				w.meet(1472)
			case 7:
				b := make([]byte, r.IntN(120))
				for i := range b {
					b[i] = byte(r.Uint32())
				}
				copy(b, "weftP\x01")
				if len(b) > 7 {
					b[6] = byte(1 + r.IntN(2))
				}
				w.do(w.nodes[0], Heard{netip.AddrPortFrom(w.nodes[1].addr, simPort), b})
			}
			w.run(time.Duration(r.IntN(20000)) * time.Millisecond)
			for _, n := range w.nodes {
				for _, s := range n.core.States() {
					if s.Out.Lost > s.Out.Of || s.In.Lost > s.In.Of || s.Out.Of > windowLen || s.PathMTU > s.MTU ||
						s.RTT < 0 ||
						(s.Answers == No) != (s.Fact != "" && s.Answers == No) || len(n.core.byEcho) > len(n.core.ways) {
						t.Fatalf("seed %d: %+v", seed, s)
					}
				}
				if len(n.core.queue) != len(n.core.ways) {
					t.Fatalf("seed %d: %d ways, %d in the queue", seed, len(n.core.ways), len(n.core.queue))
				}
			}
		}
		w.lost = func(*node, *node, int) bool { return false }
		for _, n := range w.nodes {
			n.frozen = false
		}
		w.meet(1472)
		w.run(3 * time.Minute)
		for _, n := range w.nodes {
			for _, s := range n.core.States() {
				if s.Answers != Yes || s.Lossy || s.Hole || s.PathMTU != 1472 {
					t.Errorf("seed %d: after all was mended %s of %s: %+v", seed, n.name, s.Peer, s)
				}
			}
		}
	}
}

// A host without a clock of its own has its time set by many years after weftd has started.
func TestTimesAreByTheClockAsItGoesNow(t *testing.T) {
	const years = 30 * 365 * 24 * time.Hour
	set := func(t time.Time) time.Time { // the clock on the wall alone: 30 bits of nanoseconds, then seconds
		*(*uint64)(unsafe.Pointer(&t)) += uint64(years/time.Second) << 30
		return t
	}
	began := time.Now()
	if d := set(began).Sub(began); d != 0 || set(began).Unix()-began.Unix() != int64(years/time.Second) {
		t.Fatalf("package time has other times by now: %v", d)
	}
	c := NewCore(rand.New(rand.NewPCG(1, 2)).Uint64)
	c.Step(began, Known{Ways: []Way{{Peer: "a", Addr: netip.MustParseAddr("10.1.2.0"), Port: 1}}})
	now := set(began.Add(time.Second))
	c.Step(now, Tick{})
	if s := c.States()[0]; now.Round(0).Sub(s.Since.Round(0)) != time.Second || !s.Answered.IsZero() {
		t.Errorf("at %v: since %v, answered %v", now, s.Since, s.Answered)
	}
}

func FuzzParse(f *testing.F) {
	b, _ := Datagram{Kind: Question, Session: 1, Theirs: 2, Seq: 3, Latest: 4, First: 1, Window: 15, Nonce: 6,
		Length: Size + 5}.Append(nil)
	f.Add(b)
	b, _ = Datagram{Kind: Answer, Session: 1, Nonce: 6, Length: 1400}.Append(nil)
	f.Add(b)
	f.Add([]byte("weftP\x01\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Parse(b)
		if err != nil {
			return
		}
		out, err := d.Append(nil)
		if err != nil {
			t.Fatalf("%+v was read, and not written: %v", d, err)
		}
		if again, err := Parse(out); err != nil || again != d {
			t.Fatalf("%+v became %+v, %v", d, again, err)
		}
		c := NewCore(rand.New(rand.NewPCG(1, 1)).Uint64)
		now := time.Unix(1_700_000_000, 0)
		from := netip.MustParseAddrPort("10.1.1.0:8286")
		c.Step(now, Known{[]Way{{Peer: "p", Addr: from.Addr(), Port: from.Port(), MTU: 1400}}})
		for _, e := range c.Step(now, Heard{from, b}) {
			if s, ok := e.(Send); ok && s.To == from && len(s.Data) > len(b) {
				t.Fatalf("%d bytes are answered with %d", len(b), len(s.Data))
			}
		}
		c.Step(now.Add(time.Second), Heard{from, b})
		for _, s := range c.States() {
			if s.Out.Lost > s.Out.Of || s.Out.Of > windowLen || s.In.Of > windowLen {
				t.Fatalf("%+v", s)
			}
		}
	})
}

// Of thousands of ways the log has a few lines, and later ones as soon as it was quiet.
func TestManyChangesAreFewLines(t *testing.T) {
	c := NewCore(func() func() uint64 {
		n := uint64(0)
		return func() uint64 {
			n++
			return n * 0x9e3779b97f4a7c15
		}
	}())
	var ways []Way
	for i := range 2000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		ways = append(ways, Way{Peer: fmt.Sprint("n", i), Name: fmt.Sprint("far-", i), Addr: a, Port: DefaultPort,
			Under: netip.AddrFrom4([4]byte{192, byte(i >> 8), byte(i), 1}), MTU: 1400})
	}
	now := time.Now()
	lines := 0
	event := Event(Known{ways})
	for start := now; now.Sub(start) < time.Hour; {
		for _, f := range c.Step(now, event) {
			if s, ok := f.(Say); ok {
				if lines++; lines == 1 && len(s.Line.Text) > 200 {
					t.Errorf("a long line: %s", s.Line.Text)
				}
			}
		}
		now, event = now.Add(max(time.Millisecond, c.Next().Sub(now))), Tick{}
	}
	silent := 0
	for _, s := range c.States() {
		if s.Answers == No {
			silent++
		}
	}
	if silent != len(ways) {
		t.Errorf("%d of %d are silent", silent, len(ways))
	}
	if lines == 0 || lines > 20 {
		t.Errorf("%d lines in an hour", lines)
	}
	c.touched(now)
	if c.sayAt.Sub(c.touchedSince) != gather {
		t.Errorf("after a quiet time a change waits for %v", c.sayAt.Sub(c.touchedSince))
	}
}

// What ICMP says of the overlay's datagrams while a peer is silent is the fact that is told of it.
func TestARejectionIsTheFact(t *testing.T) {
	for _, by := range []func(*node) netip.Addr{
		func(n *node) netip.Addr { return n.under }, func(*node) netip.Addr {
			return netip.MustParseAddr("203.0.113.254")
		},
	} {
		w := newWorld(t, 2, 1)
		w.meet(1472)
		me, peer := w.nodes[0], w.nodes[1]
		w.run(time.Minute)
		tell := func() {
			w.do(me, Rejected{map[netip.Addr]Rejection{peer.under: {At: w.now, By: by(peer), Says: "port unreachable"},
				me.under: {At: w.now}}})
		}
		tell()
		if s := me.of(peer); s.Fact != "" {
			t.Errorf("of a peer that answers: %q", s.Fact)
		}
		w.lost = func(a, b *node, _ int) bool { return true }
		for range 30 {
			w.run(time.Second)
			tell()
		}
		if s := me.of(peer); s.Answers != No || !strings.Contains(s.Fact, by(peer).String()) {
			t.Errorf("got %v, %q, want what %v says", s.Answers, s.Fact, by(peer))
		}
	}
}

// What a rule for OUTPUT of this host drops is not blamed on the peer.
func TestTheOwnFirewallIsNotThePeers(t *testing.T) {
	w := newWorld(t, 3, 9)
	w.meet(1472)
	w.run(time.Minute)
	me, peer := w.nodes[0], w.nodes[1]
	w.lost = func(a, b *node, _ int) bool { return a == me && b == peer || a == peer && b == me }
	w.until(time.Minute, func() bool {
		w.do(me, Unsent{peer.addr, OwnFirewall})
		return me.of(peer).Answers == No
	})
	if s := me.of(peer); s.Silence != Unsendable || s.Unsent != OwnFirewall || s.Fact == "" {
		t.Errorf("%+v", s)
	}
}

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

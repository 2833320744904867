package probe

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// gather has n ask, and returns what came of it, how long it took and how many datagrams n sent.
func (w *world) gather(n *node) (Matrix, time.Duration, int) {
	w.t.Helper()
	n.got = nil
	before := len(n.sent)
	w.do(n, Inquire{Own: []netip.Addr{n.addr}})
	took := w.until(6*time.Second, func() bool { return n.got != nil })
	return *n.got, took, len(n.sent) - before
}

func (m Matrix) row(peer string) Row {
	i := slices.IndexFunc(m.Rows, func(r Row) bool { return r.Peer == peer })
	return m.Rows[i]
}

func (r Row) cell(peer string) Cell {
	i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Peer == peer })
	if i < 0 {
		return Cell{}
	}
	return r.Cells[i]
}

func TestAHundredNodesAreGathered(t *testing.T) {
	const n = 100
	w := newWorld(t, n, 1)
	me, gone, flannel, old, from, to, frozen := w.nodes[0], w.nodes[1], w.nodes[2], w.nodes[3], w.nodes[4],
		w.nodes[5], w.nodes[6]
	flannel.flannel, old.old = true, true
	w.meet(1472)
	w.run(13 * time.Second)
	gone.gone, frozen.frozen = true, true
	w.lost = func(a, b *node, _ int) bool { return a == from && b == to }
	w.run(22 * time.Second)
	w.delay = 20 * time.Millisecond
	m, took, sent := w.gather(me)
	t.Logf("%v, %d datagrams", took, sent)
	// Three pages of each, six tries of two who are silent with a question in front, and a turn meanwhile.
	if took > 5*time.Second || sent > 3*n+2*6*2+100 || !m.Full || len(m.Rows) != n || m.Rows[0].Peer != "" {
		t.Fatalf("%v, %d datagrams, full %t, %d rows", took, sent, m.Full, len(m.Rows))
	}
	want := map[string]Telling{gone.name: Unheard, frozen.name: Unheard, flannel.name: Mute, old.name: Old}
	for _, r := range m.Rows {
		if r.Telling != want[r.Peer] {
			t.Errorf("%s: %d, want %d", r.Peer, r.Telling, want[r.Peer])
		}
		if r.Telling != Told {
			continue
		}
		if r.Of != n-1 || len(r.Cells) != n-1 || r.Silent != r.cellsThat(func(c Cell) bool {
			return c.Answers == No
		}) {
			t.Errorf("%s: %d of %d ways, %d silent", r.Peer, len(r.Cells), r.Of, r.Silent)
		}
		for _, c := range r.Cells {
			if c.Here != (c.Addr == me.addr) || c.Here != (c.Peer == "") {
				t.Errorf("%s of %v: %+v", r.Peer, c.Addr, c)
			}
			cut := r.Peer == from.name && c.Peer == to.name || r.Peer == to.name && c.Peer == from.name
			silent := c.Peer == gone.name || c.Peer == frozen.name || cut
			if (c.Answers == No) != silent || silent && c.RTT > 0 || c.ByICMP != (c.Peer == flannel.name) {
				t.Errorf("%s of %s: %+v", r.Peer, c.Peer, c)
			}
		}
	}
	// The one that is not heard hears, and so says which direction is cut.
	if a, b := m.row(from.name).cell(to.name), m.row(to.name).cell(from.name); !a.Heard || b.Heard ||
		a.Silence != HeardOnly || b.Silence != UnderlayOnly {
		t.Errorf("cut one way: %+v, %+v", a, b)
	}
	if c := m.Rows[0].cell(gone.name); c.Silence != Nothing {
		t.Errorf("gone: %+v", c)
	}
	if c := m.Rows[0].cell("n20"); c.Answers != Yes || c.Out != 0 || c.In != 0 || c.RTT == 0 ||
		c.PathMTU != 1472 {
		t.Errorf("well: %+v", c)
	}
}

func (r Row) cellsThat(is func(Cell) bool) (n int) {
	for _, c := range r.Cells {
		if is(c) {
			n++
		}
	}
	return n
}

// A peer that has started anew has forgotten the session, and a path may lose some of what is asked, or all
// that is long.
func TestGatheringGoesOnWhereSomethingIsLost(t *testing.T) {
	for name, lose := range map[string]func(w *world, a, b *node, size int) bool{
		"a third one way": func(w *world, a, _ *node, _ int) bool {
			return a == w.nodes[0] && w.rng.IntN(3) == 0
		},
		"large ones back":    func(w *world, a, _ *node, size int) bool { return a == w.nodes[1] && size > 700 },
		"nothing, but again": func(*world, *node, *node, int) bool { return false },
	} {
		w := newWorld(t, 40, 3)
		w.meet(1472)
		w.run(20 * time.Second)
		again := w.nodes[1]
		again.core = NewCore(w.rng.Uint64)
		w.meet(1472)
		w.run(2 * time.Second)
		w.lost = func(a, b *node, size int) bool { return lose(w, a, b, size) }
		m, took, _ := w.gather(w.nodes[0])
		told := 0
		for _, r := range m.Rows {
			if r.Telling == Told {
				told++
			}
		}
		if r := m.row("n1"); told < 39 || name != "a third one way" && (told != 40 || r.Of != 39) {
			t.Errorf("%s: %d of 40 told in %v; n1: %d of %d", name, told, took, r.Telling, r.Of)
		}
	}
}

// Of many nodes only what is not well is asked for, and a few dozen cells of each are kept.
func TestOfManyOnlyWhatIsUnwellIsGathered(t *testing.T) {
	w := newWorld(t, 75, 4)
	w.meet(1472)
	w.run(13 * time.Second)
	me, bad, sick := w.nodes[0], w.nodes[1], w.nodes[2]
	w.lost = func(a, b *node, _ int) bool {
		return a == bad && b == sick || (a == sick || b == sick) && a != me && b != me && a != bad && b != bad
	}
	w.run(22 * time.Second)
	me.got = nil
	w.do(me, Inquire{})
	me.core.survey.full = false // as for more than fullUpTo
	me.next = w.now
	before := len(me.sent)
	w.until(5*time.Second, func() bool { return me.got != nil })
	m := *me.got
	if r := m.row(bad.name); r.Telling != Told || len(r.Cells) != 1 || r.Cells[0].Peer != sick.name ||
		r.Of != 74 || r.Answering != 73 || r.Silent != 1 {
		t.Errorf("bad: %+v", r)
	}
	if r := m.row(sick.name); r.Telling != Partly || len(r.Cells) != mostUnwell || r.Silent != 73 {
		t.Errorf("sick: telling %d, %d cells, %d silent", r.Telling, len(r.Cells), r.Silent)
	}
	if sent := len(me.sent) - before; sent > 150 {
		t.Errorf("%d datagrams", sent)
	}
}

// Accounts are given to peers that prove who they are, not longer than what they sent, and no more of them
// than there is room for.
func TestInquiriesAreBounded(t *testing.T) {
	w := newWorld(t, 60, 5)
	w.meet(1472)
	w.run(13 * time.Second)
	me, peer := w.nodes[0], w.nodes[1]
	way := me.core.ways[peer.addr]
	ask := func(from netip.AddrPort, length int, theirs uint32, change func([]byte)) (page []byte) {
		d := Datagram{Kind: Inquiry, Session: 7, Theirs: theirs, Nonce: 9, Length: uint32(length)}
		b, err := d.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		b[Size] = accountForm
		if change != nil {
			change(b)
		}
		for _, e := range me.core.Step(w.now, Heard{from, b}) {
			if s, ok := e.(Send); ok && Kind(s.Data[6]) == Account {
				page = s.Data
			}
		}
		return page
	}
	at := netip.AddrPortFrom(peer.addr, simPort)
	for _, length := range []int{Size, inquirySize, accountSize, leastInquiry - 1, leastInquiry, 500, 1232,
		9000, 60000} {
		w.now = w.now.Add(10 * time.Second)
		page := ask(at, max(length, inquirySize), way.session, nil)
		if (page != nil) != (length >= leastInquiry) || len(page) > length {
			t.Errorf("%d bytes are answered with %d", length, len(page))
		}
		if page == nil {
			continue
		}
		a, err := parseAccount(page)
		if err != nil || a.Of != 59 || len(a.cells) != min(59, mostEntries, (length-accountSize)/entrySize) ||
			(a.Next != 0) != (len(a.cells) < 59) {
			t.Errorf("%d bytes: %+v, %v", length, a, err)
		}
	}
	for name, page := range map[string][]byte{
		"a stranger":            ask(netip.MustParseAddrPort("10.1.1.7:8286"), 1232, way.session, nil),
		"another port":          ask(netip.AddrPortFrom(peer.addr, 999), 1232, way.session, nil),
		"who was told nothing":  ask(at, 1232, 0, nil),
		"who guesses":           ask(at, 1232, way.session+1, nil),
		"another form":          ask(at, 1232, way.session, func(b []byte) { b[Size] = 2 }),
		"who says another size": ask(at, 1232, way.session, func(b []byte) { b[42] = 0 }),
	} {
		if page != nil {
			t.Errorf("%s is told", name)
		}
	}
	if page := ask(at, 1232, way.session, func(b []byte) { b[Size+4], b[Size+7] = 0xff, 3 }); page == nil ||
		len(page) != accountSize {
		t.Errorf("behind the end: %d bytes", len(page))
	}
	given := 0
	for range 1000 {
		if ask(at, 1232, way.session, nil) != nil {
			given++
		}
	}
	if given > accountsBurst {
		t.Errorf("%d accounts at once", given)
	}
	given = 0
	for _, o := range w.nodes[2:] {
		for range accountsBurst {
			if ask(netip.AddrPortFrom(o.addr, simPort), 1232, me.core.ways[o.addr].session, nil) != nil {
				given++
			}
		}
	}
	if given > allAccountsBurst {
		t.Errorf("%d accounts at once to all", given)
	}
}

// Whatever a peer tells, what is kept of it is bounded, and the survey ends.
func TestLiarsAreBounded(t *testing.T) {
	for name, page := range map[string]func(w *world, a *account, n int){
		"endless":        func(_ *world, a *account, n int) { a.Next = a.From + 1; a.cells = nil },
		"always another": func(_ *world, a *account, n int) { a.Generation = uint32(n); a.Next = a.From + 1 },
		"millions": func(_ *world, a *account, n int) {
			a.Of, a.Next = 1<<32-1, a.From+1
			a.cells = lies(n)
		},
		"backwards":        func(_ *world, a *account, n int) { a.Next = a.From },
		"not as asked for": func(_ *world, a *account, n int) { a.From++ },
		"repeats itself": func(_ *world, a *account, n int) {
			a.Next = a.From + 1
			a.cells = append(a.cells[:1:1], a.cells[0])
		},
	} {
		w := newWorld(t, 5, 6)
		w.meet(1472)
		w.run(13 * time.Second)
		me, liar := w.nodes[0], w.nodes[1]
		w.do(me, Inquire{Own: []netip.Addr{me.addr}})
		began, pages := w.now, 0
		for me.got == nil && w.now.Sub(began) < 10*time.Second {
			w.run(time.Millisecond)
			for i, l := range w.mail {
				h, ok := l.event.(Heard)
				if !ok || l.to != me || h.From.Addr() != liar.addr || Kind(h.Data[6]) != Account {
					continue
				}
				a, err := parseAccount(h.Data)
				if err != nil {
					t.Fatal(err)
				}
				pages++
				page(w, &a, pages)
				w.mail[i].event = Heard{h.From, a.append(slices.Clone(h.Data[:Size]))}
			}
		}
		if me.got == nil {
			t.Fatalf("%s: it does not end", name)
		}
		if r := me.got.row(liar.name); len(r.Cells) > 4+1+unknownCells || pages > 100 {
			t.Errorf("%s: %d cells, %d pages", name, len(r.Cells), pages)
		}
		if r := me.got.row("n2"); r.Telling != Told || len(r.Cells) != 4 {
			t.Errorf("%s: of another node: %+v", name, r)
		}
	}
}

// lies are cells of addresses that nobody has.
func lies(n int) (out []Cell) {
	for i := range 30 {
		out = append(out, Cell{Addr: netip.AddrFrom4([4]byte{192, byte(n >> 8), byte(n), byte(i)}), Answers: Yes})
	}
	return out
}

// Who sends from a peer's address, as a pod may that has NET_RAW, takes no answers from it, and makes nobody
// believe that it loses packets.
func TestForgedQuestionsTakeNobodysAnswers(t *testing.T) {
	w := newWorld(t, 3, 7)
	w.meet(1472)
	w.run(time.Minute)
	me, peer := w.nodes[0], w.nodes[1]
	answers := func(theirs uint32, seq uint32) (n int) {
		b, err := Datagram{Kind: Question, Session: 99, Theirs: theirs, Seq: seq, Nonce: 5,
			Length: Size}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range me.core.Step(w.now, Heard{netip.AddrPortFrom(peer.addr, simPort), b}) {
			if s, ok := e.(Send); ok && Kind(s.Data[6]) == Answer {
				n++
			}
		}
		return n
	}
	given := 0
	for i := range uint32(10000) {
		given += answers(0, i*3)
		if i%10 == 0 {
			w.run(10 * time.Millisecond)
		}
	}
	if given > unprovedBurst+20*2 {
		t.Errorf("%d answers in ten seconds", given)
	}
	if s := me.of(peer); s.In.Lost > 0 || s.Out.Lost > 0 || s.Lossy {
		t.Errorf("after forged questions: %+v", s)
	}
	if answers(me.core.ways[peer.addr].session, 1) != 1 {
		t.Error("the peer itself is not answered")
	}
	w.run(time.Minute)
	if len(me.lines)+len(peer.lines) > 0 {
		t.Errorf("said: %v, %v", me.lines, peer.lines)
	}
}

// Questions out of turn, and the answers to them, count for no loss.
func TestQuestionsOutOfTurnAreNoLosses(t *testing.T) {
	w := newWorld(t, 2, 8)
	w.meet(1472)
	w.run(time.Minute)
	me, peer := w.nodes[0], w.nodes[1]
	for i := range uint64(6) {
		w.do(me, Ask{To: peer.addr, Nonce: i + 1})
		w.run(7 * time.Second)
		if a, b := me.of(peer), peer.of(me); a.In.Lost+a.Out.Lost+b.In.Lost+b.Out.Lost > 0 {
			t.Fatalf("%+v, %+v", a, b)
		}
	}
}

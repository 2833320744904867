package probe

import (
	"cmp"
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// Core decides who is asked when, and keeps what is known of each way. It belongs to one goroutine. Its zero
// value is of no use: NewCore. Its times are zero for none.
type Core struct {
	rand func() uint64

	ways   map[netip.Addr]*way
	sorted []*way // by peer and address
	mark   uint32 // of the last Known
	queue  queue
	byEcho map[uint64]*way // by the nonces of echo requests on the underlay

	sending *rate.Limiter // of what turns send
	resume  time.Time     // when to go on with turns for which there was no room
	limits  limits        // of what is answered

	survey *survey // nil for none

	wanted, stepped time.Time // when the next step was to come, and when the last one came
	blind           time.Time // until when nobody is asked, since this node itself was not run

	touchedSince, sayAt time.Time // of changes that have not been said
	saidAt              time.Time // when something was last said
	pace                time.Duration

	effects []Effect
}

// NewCore returns a core without ways. random returns numbers that nobody can guess.
func NewCore(random func() uint64) *Core {
	return &Core{rand: random, ways: map[netip.Addr]*way{}, byEcho: map[uint64]*way{},
		sending: rate.NewLimiter(perSecond, burst), limits: limitsOfAll()}
}

// Event is what a core is told. It is one of Known, Heard, Echoed, Refused, Unsent, TooBig,
// Rejected, Ask, Inquire and Tick.
type Event interface{ event() }

type (
	// Known has all ways that there are now. The core keeps the slice, which nobody may change any more.
	Known struct{ Ways []Way }
	// Heard is a datagram that arrived at the node's overlay address by a device by which those of peers arrive.
	Heard struct {
		From netip.AddrPort
		Data []byte // borrowed until Step returns
	}
	// Echoed is an answer to an echo request: by ICMP, with the nonce of the request. Size is that of the packet
	// as it arrived, in bytes.
	Echoed struct {
		From  netip.Addr
		Nonce uint64
	}
	// Refused says that the host with that overlay address answered by ICMP that nothing listens on the port.
	Refused struct{ Addr netip.Addr }
	// Unsent says that the kernel did not take what was to be sent.
	Unsent struct {
		To  netip.Addr
		Why string
	}
	// TooBig says that a packet was larger than MTU, in bytes, which is all that the way carries: this host
	// knows it, and so do senders. Anybody can say so by ICMP, so that it counts for a while only.
	TooBig struct {
		To  netip.Addr
		MTU int
	}
	// Ask has one question sent to a peer at once, beside those of the turns. Its answer is whoever's who drew
	// Nonce: it changes nothing of what is known of the way, and counts for no loss.
	Ask struct {
		To    netip.Addr
		Nonce uint64
	}
	// Inquire has all peers asked what they know of theirs; Own are this node's addresses, as peers know them.
	// One at a time is gathered: while that goes on another one changes nothing.
	Inquire struct{ Own []netip.Addr }
	// Rejected has what ICMP lately said of the overlay's datagrams, by the address on the underlay to which
	// they went.
	Rejected struct{ By map[netip.Addr]Rejection }
	// Tick says that the time of Next has come.
	Tick struct{}
)

func (Known) event()    {}
func (Heard) event()    {}
func (Echoed) event()   {}
func (Refused) event()  {}
func (Unsent) event()   {}
func (TooBig) event()   {}
func (Ask) event()      {}
func (Inquire) event()  {}
func (Rejected) event() {}
func (Tick) event()     {}

// Effect is what a core wants done. It is one of Send, Echo, Say and Gathered.
type Effect interface{ effect() }

type (
	// Send is a datagram to a peer's overlay address.
	Send struct {
		To   netip.AddrPort
		Data []byte
	}
	// Echo is an ICMP echo request. Size is that of the packet with its IP header, in bytes, at least what the
	// nonce needs.
	Echo struct {
		To    netip.Addr
		Under bool // on the underlay, not through the overlay
		Nonce uint64
		Size  int
	}
	// Say is a line for the log.
	Say struct{ Line Line }
	// Gathered has what came of Inquire.
	Gathered struct{ Matrix Matrix }
)

func (Send) effect()     {}
func (Echo) effect()     {}
func (Say) effect()      {}
func (Gathered) effect() {}

// Step takes in one event, and returns what is to be done for it in that order. The effects are the caller's
// until the next Step.
func (c *Core) Step(now time.Time, e Event) []Effect {
	c.effects = c.effects[:0]
	c.notice(now)
	switch e := e.(type) {
	case Known:
		c.know(e.Ways, now)
	case Heard:
		c.heard(e, now)
	case Echoed:
		c.echoed(e, now)
	case Refused:
		if w := c.ways[e.Addr]; w != nil {
			w.refused = now
		}
	case Unsent:
		if w := c.ways[e.To]; w != nil {
			w.unsent, w.unsentAt = e.Why, now
		}
	case TooBig:
		if w := c.ways[e.To]; w != nil && e.MTU >= leastMTU4 && e.MTU < w.mtu.most && now.After(w.refuted) {
			w.narrow, w.narrowUntil, w.doubts = e.MTU, now.Add(narrowFor), claimTries
			w.mtu.limit(e.MTU)
		}
	case Rejected:
		for _, w := range c.sorted {
			if r, ok := e.By[w.Under]; ok {
				w.rejection = r
			}
		}
	case Ask:
		if w := c.ways[e.To]; w != nil && !w.isEcho() { // nobody would answer it there
			c.send(w, c.datagram(w, Question, 0, e.Nonce))
		}
	case Inquire:
		c.beginSurvey(e.Own, now)
	case Tick:
	}
	c.turns(now)
	c.goOnSurvey(now)
	c.sayChanges(now)
	if c.wanted = c.Next(); !c.wanted.IsZero() && c.wanted.Before(now) {
		c.wanted = now
	}
	return c.effects
}

// Next is when the core wants a Tick, if no event comes before; the zero time for never.
func (c *Core) Next() time.Time {
	next := []time.Time{c.sayAt, c.look()}
	if !c.blind.IsZero() {
		next = append(next, c.blind)
	} else if !c.resume.IsZero() {
		next = append(next, c.resume)
	} else if len(c.queue) > 0 {
		next = append(next, c.queue[0].due)
	}
	if c.survey != nil {
		next = append(next, c.survey.due)
	}
	next = slices.DeleteFunc(next, time.Time.IsZero)
	if len(next) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(next, time.Time.Compare)
}

// know takes in the ways that there are. The state of a peer that stays is kept.
func (c *Core) know(ways []Way, now time.Time) {
	c.mark++
	spread := max(2*time.Second, time.Duration(len(ways))*time.Second/regular)
	for i := range ways {
		n := &ways[i]
		w := c.ways[n.Addr]
		if !n.Addr.IsValid() || w != nil && w.mark == c.mark {
			continue
		}
		if w != nil && (w.Peer != n.Peer || w.isEcho() != (n.Port == 0)) { // another node
			c.forget(w)
			w = nil
		}
		if w == nil {
			w = &way{Way: n, due: now.Add(knownAfter + c.random(spread)), since: now,
				session: max(1, uint32(c.rand())), limits: limitsOfOne()}
			c.ways[n.Addr] = w
			heap.Push(&c.queue, w)
		}
		w.Way, w.mark = n, c.mark
		if w.narrow == 0 || n.MTU < w.narrow {
			w.narrow = 0
			w.mtu.limit(n.MTU)
		}
	}
	for _, w := range c.ways {
		if w.mark != c.mark {
			c.forget(w)
		}
	}
	c.sorted = slices.SortedFunc(maps.Values(c.ways), func(a, b *way) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), a.Addr.Compare(b.Addr))
	})
}

func (c *Core) forget(w *way) {
	delete(c.ways, w.Addr)
	delete(c.byEcho, w.nonces[1])
	heap.Remove(&c.queue, w.at)
}

// ask sends the questions of one turn. While the way is silent, the kernels of the peer are asked too,
// through the overlay and beside it: which of them answers tells where the fault is.
func (c *Core) ask(w *way, now time.Time) {
	for range c.questions() {
		c.question(w, 0, now)
	}
	if w.missed == 0 && w.answers != No {
		w.pad = w.padSize(now)
		return
	}
	if w.missed == 1 {
		return
	}
	if !w.isEcho() {
		w.nonces[0] = c.rand()
		c.effects = append(c.effects, Echo{To: w.Addr, Nonce: w.nonces[0]})
	}
	if w.Under.IsValid() {
		delete(c.byEcho, w.nonces[1])
		w.nonces[1] = c.rand()
		c.byEcho[w.nonces[1]] = w
		c.effects = append(c.effects, Echo{To: w.Under, Under: true, Nonce: w.nonces[1]})
	}
}

// question sends one question; size is that of the inner packet for one that tries the path, and else 0.
func (c *Core) question(w *way, size int, now time.Time) {
	q := asked{nonce: c.rand(), at: now, size: size}
	if size == 0 {
		w.seq++
		q.seq = w.seq
	}
	if w.asked == nil {
		w.asked = make([]asked, keptFor*c.questions())
	}
	w.asked[w.next] = q
	w.next = (w.next + 1) % len(w.asked)
	if w.isEcho() {
		c.effects = append(c.effects, Echo{To: w.Addr, Nonce: q.nonce, Size: size})
		return
	}
	d := c.datagram(w, Question, q.seq, q.nonce)
	d.Length = uint32(max(Size, size-w.headers()))
	c.send(w, d)
}

// headers is what IP and UDP add to a datagram, in bytes.
func (w *way) headers() int {
	if w.Addr.Is6() {
		return 48
	}
	return 28
}

// leastMTU is what every path of the family carries, in bytes.
func (w *way) leastMTU() int {
	if w.Addr.Is6() {
		return leastMTU6
	}
	return leastMTU4
}

func (c *Core) datagram(w *way, kind Kind, seq uint32, nonce uint64) Datagram {
	return Datagram{
		Kind: kind, Tells: true, Session: w.session, Theirs: w.in.session, Seq: seq, Nonce: nonce, Length: Size,
		Latest: w.in.latest, First: w.in.first, Window: w.in.bits,
	}
}

func (c *Core) send(w *way, d Datagram) {
	b, err := d.Append(nil)
	if err != nil {
		return // a size that no path has
	}
	c.deliver(w, b)
}

func (c *Core) deliver(w *way, b []byte) {
	c.effects = append(c.effects, Send{To: netip.AddrPortFrom(w.Addr, w.Port), Data: b})
}

// heard takes in a datagram. Only peers are answered, with less than they sent or as much.
func (c *Core) heard(e Heard, now time.Time) {
	w := c.ways[e.From.Addr().Unmap()]
	if w == nil || w.isEcho() || e.From.Port() != w.Port {
		return
	}
	d, err := Parse(e.Data)
	if err != nil {
		return
	}
	switch d.Kind {
	case Question:
		w.heard = now
		if !c.mayAnswer(w, d, now) {
			return
		}
		answer := c.datagram(w, Answer, 0, d.Nonce)
		if w.proved(d) {
			// or else the loss would be that of anybody's numbers, and of answers that the peer did not ask for
			c.take(w, d, now)
			seq := uint32(0)
			if d.Seq > 0 { // who asks out of turn does not count the answers either
				w.seq++
				seq = w.seq
			}
			c.watchLoss(w, now)
			answer = c.datagram(w, Answer, seq, d.Nonce)
		}
		answer.Length = d.Length
		c.send(w, answer)
	case Answer:
		q, ok := w.found(d.Nonce)
		if !ok {
			return
		}
		c.take(w, d, now)
		c.answer(w, q, now)
	case Inquiry:
		if w.proved(d) {
			c.tell(w, d, e.Data, now)
		}
	case Account:
		c.told(w, d, e.Data, now)
	}
}

// take notes what a datagram says of what passed in either direction.
func (c *Core) take(w *way, d Datagram, now time.Time) {
	w.heard, w.tells = now, d.Tells
	w.in.arrived(d.Session, d.Seq)
	if d.Theirs != w.session || d.Latest == 0 || d.Latest > w.seq || d.First == 0 || d.First > d.Latest {
		return
	}
	if w.out.session == d.Session && d.Latest < w.out.latest { // overtaken by a later one
		return
	}
	w.out = window{session: d.Session, latest: d.Latest, first: max(d.First, w.counted), bits: d.Window}
}

// found takes a question out of those that are on their way.
func (w *way) found(nonce uint64) (asked, bool) {
	for i, q := range w.asked {
		if q.nonce == nonce && !q.at.IsZero() {
			w.asked[i] = asked{}
			return q, true
		}
	}
	return asked{}, false
}

// echoed takes in an answer to an echo request.
func (c *Core) echoed(e Echoed, now time.Time) {
	if w := c.byEcho[e.Nonce]; w != nil && w.Under == e.From {
		w.underlying = now
		delete(c.byEcho, e.Nonce)
		return
	}
	w := c.ways[e.From]
	if w == nil {
		return
	}
	if w.nonces[0] == e.Nonce {
		w.echoed = now
	}
	q, ok := w.found(e.Nonce)
	if !ok || !w.isEcho() {
		return
	}
	w.out.arrived(w.session, q.seq)
	c.answer(w, q, now)
}

// States is what is known of each way, by peer and address.
func (c *Core) States() []State {
	out := make([]State, 0, len(c.sorted))
	for _, w := range c.sorted {
		out = append(out, c.state(w))
	}
	return out
}

// troubled reports whether a way is silent.
func (c *Core) troubled() bool {
	return slices.ContainsFunc(c.sorted, func(w *way) bool { return w.missed > 0 })
}

// Alone reports whether there are peers, and none of them answers.
func (c *Core) Alone() bool {
	for _, w := range c.sorted {
		if w.answers != No {
			return false
		}
	}
	return len(c.sorted) > 0
}

// wall is t by the clock on the wall as it goes now, which may have been set since t: at the start of a host
// that has no clock of its own by many years.
func (c *Core) wall(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return c.stepped.Add(t.Sub(c.stepped))
}

func (c *Core) state(w *way) State {
	s := State{
		Way: *w.Way, Answers: w.answers, Since: c.wall(w.since), Answered: c.wall(w.answered),
		Heard: c.wall(w.heard), RTT: w.rtt, MinRTT: w.minRTT, Silence: w.silence(), Fact: w.fact(),
		PathMTU: w.mtu.passed, Hole: w.mtu.hole,
	}
	if w.answers != No {
		s.Out, s.In, s.Lossy = w.out.loss(windowLen), w.in.loss(windowLen), w.lossy
	}
	if s.Silence == Unsendable {
		s.Unsent = w.unsent
	}
	return s
}

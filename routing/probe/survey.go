package probe

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// Matrix is what the nodes know of each other.
type Matrix struct {
	// Full says that they were asked for all they know, and not only for what is not well: of many nodes that
	// would be too much.
	Full bool
	// Rows has this node's first, with an empty Peer, and then the others', by Peer.
	Rows []Row
}

// Row is what one node says of its ways to others.
type Row struct {
	Peer, Name string
	Telling    Telling
	// Of counts the ways that it has, Answering those that answer, of which Lossy lose packets or large ones,
	// and Silent those that do not.
	Of, Answering, Silent, Lossy int
	// Cells has the ways themselves, or only those on which something is wrong; no more of these than some
	// dozens.
	Cells []Cell
}

// Telling says whether a node has told what it knows.
type Telling uint8

// The reasons why a node has not told.
const (
	Told    Telling = iota
	Partly          // it has told a part, and then no more
	Unheard         // it does not answer at all
	Late            // it answers, but has not told in time
	Old             // it answers, but is of a version that does not tell
	Mute            // it is asked by ICMP, and so runs no weft that could tell
)

const (
	// fullUpTo is up to how many peers all is asked for.
	fullUpTo = 256
	// surveyFor is how long a survey takes at the most, but for where there are so many peers that they cannot
	// be asked in half that time at surveyPerSecond.
	surveyFor       = 4 * time.Second
	surveyPerSecond = 400
	surveyBurst     = 20
	// tries is how often a page is asked for, and tellPatience how long each time an account may take, besides
	// two round trips.
	tries        = 6
	tellPatience = 500 * time.Millisecond
	// helloFor is how long it is waited for an answer to a question that goes in front of an inquiry, to learn
	// the peer's session.
	helloFor = 200 * time.Millisecond
	// pageMTU is the inner packet of an inquiry, in bytes, where the way is known to carry that.
	pageMTU = 1280
	// mostUnwell is how many cells are taken of one node where only those are asked for on which something is
	// wrong, and unknownCells how many of addresses that this node does not know.
	mostUnwell, unknownCells = 64, 16
)

// survey gathers what the peers know.
type survey struct {
	due, until time.Time
	sending    *rate.Limiter
	full       bool
	own        []netip.Addr
	asked      []*inquiry
	byPeer     map[string]*inquiry
	open       int
}

// inquiry is what one peer is asked in a survey, and what it has told.
type inquiry struct {
	Row
	ways  []netip.Addr // by which it can be asked
	due   time.Time
	try   int
	nonce uint64 // of the inquiry on its way, 0 for none

	from, generation uint32
	pages            int
	have             map[netip.Addr]bool
	done             bool
}

// beginSurvey asks all peers, a few at once.
func (c *Core) beginSurvey(own []netip.Addr, now time.Time) {
	if c.survey != nil {
		return
	}
	s := &survey{due: now, until: now.Add(surveyFor), own: own, byPeer: map[string]*inquiry{}}
	c.survey = s
	for _, w := range c.sorted {
		q := s.byPeer[w.Peer]
		if q == nil {
			q = &inquiry{Row: Row{Peer: w.Peer, Name: w.Name}, have: map[netip.Addr]bool{}}
			s.byPeer[w.Peer] = q
			s.asked = append(s.asked, q)
		}
		switch {
		case w.isEcho():
		case w.answers == Yes:
			q.ways = slices.Insert(q.ways, 0, w.Addr)
		default:
			q.ways = append(q.ways, w.Addr)
		}
	}
	s.full, s.open = len(s.asked) <= fullUpTo, len(s.asked)
	s.sending = rate.NewLimiter(max(surveyPerSecond, rate.Limit(float64(s.open)/(surveyFor.Seconds()/2))),
		surveyBurst)
	for _, q := range s.asked {
		if len(q.ways) == 0 {
			s.finish(q, Mute)
		}
	}
}

func (s *survey) finish(q *inquiry, t Telling) {
	q.done, q.Telling = true, t
	s.open--
}

// goOnSurvey asks whom it is time to ask, and ends a survey that is over.
func (c *Core) goOnSurvey(now time.Time) {
	s := c.survey
	if s == nil || s.open > 0 && now.Before(s.due) {
		return
	}
	s.due = s.until
	for _, q := range s.asked {
		wait := q.due
		switch {
		case q.done:
			continue
		case !now.Before(s.until) || !q.due.After(now) && q.try == tries:
			s.finish(q, c.untold(q))
			continue
		case q.due.After(now):
		case s.sending.TokensAt(now) < 1:
			wait = now.Add(10 * time.Millisecond)
		default:
			before := len(c.effects)
			c.inquire(q, now)
			s.sending.ReserveN(now, len(c.effects)-before)
			if wait = q.due; q.done {
				continue
			}
		}
		if wait.Before(s.due) {
			s.due = wait
		}
	}
	if s.open > 0 {
		return
	}
	c.survey = nil
	m := Matrix{Full: s.full, Rows: []Row{c.ownRow(s.full, now)}}
	for _, q := range s.asked {
		m.Rows = append(m.Rows, q.Row)
	}
	c.effects = append(c.effects, Gathered{m})
}

// inquire asks q for its next page, by another way each time. In front of a second try, and of a first where
// the peer's session is not known, a question goes: without that session a peer does not tell.
func (c *Core) inquire(q *inquiry, now time.Time) {
	w := c.ways[q.ways[q.try%len(q.ways)]]
	q.try++
	if w == nil { // gone meanwhile
		q.due = now
		return
	}
	if w.answers == Yes && !w.tells {
		c.survey.finish(q, Old)
		return
	}
	if hello := w.in.session == 0; hello || q.try > 1 {
		c.question(w, 0, now)
		if hello {
			q.due = now.Add(helloFor + min(2*w.rtt, time.Second))
			return
		}
	}
	mtu := min(pageMTU, w.mtu.passed)
	if mtu == 0 || q.try > 2 { // the page may be too long for the way back
		mtu = w.leastMTU()
	}
	q.nonce = max(1, c.rand())
	d := c.datagram(w, Inquiry, 0, q.nonce)
	d.Length = uint32(max(leastInquiry, mtu-w.headers()))
	b, err := d.Append(nil)
	if err != nil {
		return // a size that no path has
	}
	inquiryBody{Only: !c.survey.full, From: q.from}.put(b)
	c.deliver(w, b)
	q.due = now.Add(tellPatience + min(2*w.rtt, time.Second))
}

// told takes in a page, if it was asked for.
func (c *Core) told(w *way, d Datagram, b []byte, now time.Time) {
	s := c.survey
	if s == nil {
		return
	}
	q := s.byPeer[w.Peer]
	if q == nil || q.done || q.nonce == 0 || q.nonce != d.Nonce || int(d.Length) < len(b) {
		return
	}
	a, err := parseAccount(b)
	if err != nil || a.From != q.from || a.Only == s.full {
		return
	}
	w.heard, w.tells = now, d.Tells
	q.nonce, q.try, q.due, s.due = 0, 0, now, now
	q.Of, q.Answering, q.Silent, q.Lossy = int(a.Of), int(a.Answering), int(a.Silent), int(a.Lossy)
	moved := q.pages > 0 && a.Generation != q.generation // its ways are others now, or at other places
	q.pages, q.generation = q.pages+1, a.Generation
	full := false
	if moved {
		q.from, q.Cells = 0, nil
		clear(q.have)
	} else {
		q.from, full = a.Next, c.addCells(q, a.cells)
	}
	switch {
	case !moved && a.Next == 0:
		s.finish(q, Told)
	case full || q.pages > 4+len(c.ways)/4:
		s.finish(q, Partly)
	}
}

// addCells adds cells to what q has told, but for those of an address that it told of before. It reports
// whether no more are taken.
func (c *Core) addCells(q *inquiry, cells []Cell) (full bool) {
	most := len(c.ways) + len(c.survey.own) + unknownCells
	if !c.survey.full {
		most = min(most, mostUnwell)
	}
	for _, x := range cells {
		if q.have[x.Addr] {
			continue
		}
		if len(q.Cells) == most {
			return true
		}
		if w := c.ways[x.Addr]; w != nil {
			x.Peer = w.Peer
		}
		x.Here = slices.Contains(c.survey.own, x.Addr)
		q.have[x.Addr] = true
		q.Cells = append(q.Cells, x)
	}
	return false
}

// untold says why a peer has not told, or not all.
func (c *Core) untold(q *inquiry) Telling {
	if q.pages > 0 {
		return Partly
	}
	out := Unheard
	for _, a := range q.ways {
		if w := c.ways[a]; w != nil && w.answers == Yes {
			if w.missed == 0 && !w.tells {
				return Old
			}
			if w.missed == 0 {
				out = Late
			}
		}
	}
	return out
}

// ownRow is what this node says of its own ways.
func (c *Core) ownRow(full bool, now time.Time) Row {
	a := c.count()
	r := Row{Of: int(a.Of), Answering: int(a.Answering), Silent: int(a.Silent), Lossy: int(a.Lossy)}
	for _, w := range c.sorted {
		if x := c.cell(w, now); full || x.Troubled() && len(r.Cells) < mostUnwell {
			r.Cells = append(r.Cells, x)
		}
	}
	return r
}

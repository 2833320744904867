package probe

import (
	"net/netip"
	"slices"
	"time"
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
	// restarts is how often a node's account begins anew since its ways have changed meanwhile.
	restarts = 2
)

// survey gathers what the peers know.
type survey struct {
	due, until moment
	tokens     float64
	filled     moment
	perSecond  float64
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
	due   moment
	try   int
	nonce uint64 // of the inquiry on its way, 0 for none
	from  uint32

	generation     uint32
	pages, strange int
	begun          int
	have           map[netip.Addr]bool
	done           bool
}

// beginSurvey asks all peers, a few at once.
func (c *Core) beginSurvey(own []netip.Addr, now moment) {
	if c.survey != nil {
		return
	}
	s := &survey{due: now, own: own, byPeer: map[string]*inquiry{}, tokens: surveyBurst, filled: now}
	for _, w := range c.sorted {
		q := s.byPeer[w.Peer]
		if q == nil {
			q = &inquiry{Row: Row{Peer: w.Peer, Name: w.Name}, have: map[netip.Addr]bool{}}
			s.byPeer[w.Peer] = q
			s.asked = append(s.asked, q)
		}
		if w.Port != 0 {
			q.ways = append(q.ways, w.Addr)
		}
	}
	s.full = len(s.asked) <= fullUpTo
	s.open = len(s.asked)
	s.perSecond = max(surveyPerSecond, float64(len(s.asked))/(surveyFor.Seconds()/2))
	s.until = now.Add(surveyFor)
	c.survey = s
	for _, q := range s.asked {
		slices.SortFunc(q.ways, func(a, b netip.Addr) int {
			return int(c.ways[b].answers&Yes) - int(c.ways[a].answers&Yes)
		})
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
func (c *Core) goOnSurvey(now moment) {
	s := c.survey
	if s == nil || s.open > 0 && now.Before(s.due) {
		return
	}
	s.tokens = min(surveyBurst, s.tokens+now.Sub(s.filled).Seconds()*s.perSecond)
	s.filled = now
	over := !now.Before(s.until)
	s.due = s.until
	for _, q := range s.asked {
		switch {
		case q.done:
		case over || !q.due.After(now) && q.try == tries:
			s.finish(q, c.untold(q))
		case q.due.After(now):
			s.due = min(s.due, q.due)
		case s.tokens < 1:
			s.due = min(s.due, now.Add(10*time.Millisecond))
		default:
			before := len(c.effects)
			c.inquire(q, now)
			s.tokens -= float64(len(c.effects) - before)
			if !q.done {
				s.due = min(s.due, q.due)
			}
		}
	}
	if s.open > 0 {
		return
	}
	c.survey = nil
	m := Matrix{Full: s.full, Rows: make([]Row, 0, len(s.asked)+1)}
	m.Rows = append(m.Rows, c.ownRow(s.full, now))
	for _, q := range s.asked {
		m.Rows = append(m.Rows, q.Row)
	}
	c.effects = append(c.effects, Gathered{m})
}

// inquire asks q for its next page, by another way each time. In front of a second try, and of a first where
// the peer's session is not known, a question goes: without that session a peer does not tell.
func (c *Core) inquire(q *inquiry, now moment) {
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
	mtu := min(pageMTU, int(w.mtu.passed))
	if mtu == 0 || q.try > 2 { // the page may be too long for the way back
		mtu = w.leastMTU()
	}
	q.nonce = max(1, c.rand())
	d := c.datagram(w, Inquiry, 0, q.nonce)
	d.Length = max(leastInquiry, mtu-w.headers())
	b, err := d.Append(nil)
	if err != nil {
		return // a size that no path has
	}
	inquiryBody{only: !c.survey.full, from: q.from}.put(b)
	c.deliver(w, b)
	q.due = now.Add(tellPatience + min(2*w.rtt, time.Second))
}

// told takes in a page, if it was asked for.
func (c *Core) told(w *way, d Datagram, b []byte, now moment) {
	s := c.survey
	if s == nil {
		return
	}
	q := s.byPeer[w.Peer]
	if q == nil || q.done || q.nonce == 0 || q.nonce != d.Nonce || d.Length < len(b) {
		return
	}
	a, err := parseAccount(b)
	if err != nil || a.from != q.from || a.only == s.full {
		return
	}
	w.heard, w.tells = now, d.Tells
	q.nonce = 0
	if q.pages > 0 && a.made != q.generation && q.begun < restarts {
		// its ways are others now, or at other places
		q.begun++
		q.from, q.pages, q.strange, q.Cells, q.have = 0, 0, 0, nil, map[netip.Addr]bool{}
		q.try, q.due, s.due = 0, now, now
		return
	}
	q.generation = a.made
	q.pages++
	q.Of, q.Answering, q.Silent, q.Lossy = int(a.of), int(a.answering), int(a.silent), int(a.lossy)
	full := c.take1(q, a.cells)
	switch {
	case a.next == 0:
		s.finish(q, Told)
	case full || q.pages > 4+len(c.ways)/4:
		s.finish(q, Partly)
	default:
		q.from, q.try, q.due = a.next, 0, now
	}
	s.due = now
}

// take1 adds cells to what q has told, but for those of an address that it told of before. It reports whether
// no more are taken.
func (c *Core) take1(q *inquiry, cells []Cell) (full bool) {
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
		w := c.ways[x.Addr]
		switch {
		case slices.Contains(c.survey.own, x.Addr):
			x.Here = true
		case w != nil:
			x.Peer = w.Peer
		case q.strange == unknownCells:
			continue
		default:
			q.strange++
		}
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
func (c *Core) ownRow(full bool, now moment) Row {
	a := c.count()
	r := Row{Of: int(a.of), Answering: int(a.answering), Silent: int(a.silent), Lossy: int(a.lossy)}
	for _, w := range c.sorted {
		if x := c.cell(w, now); full || x.Troubled() && len(r.Cells) < mostUnwell {
			r.Cells = append(r.Cells, x)
		}
	}
	return r
}

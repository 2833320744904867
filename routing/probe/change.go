package probe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/routing/event"
	"weft/tunnel/port"
)

// Line is what is said of a change: of one peer, or of many that changed alike.
type Line struct {
	// Warn is false for what is well again.
	Warn bool
	// Event is port.EventPeerUnanswering or event.PeerLossy.
	Event port.EventKind
	// Text is what is so now, and names the peers. Fact says what was observed; "" where nothing is wrong.
	Text, Fact string
}

const (
	// gather is how long changes are gathered before they are said, and gatherMost the same as long as more
	// peers are silent and may be about to be found not to answer.
	gather, gatherMost = 2 * time.Second, 10 * time.Second
	// slowest is how long changes are gathered where they go on: each line doubles the time to the next, until
	// nothing changes for twice that long. Of ten thousand peers that fall silent a few are found each second,
	// and nobody reads a line for each few.
	slowest = time.Minute
	// named is how many peers a line names at the most.
	named = 5
)

// touched has what changed said soon.
func (c *Core) touched(now time.Time) {
	if c.touchedSince.IsZero() {
		if c.pace = min(2*c.pace, slowest); c.pace == 0 || now.Sub(c.saidAt) > c.pace {
			c.pace = gather
		}
		c.touchedSince, c.sayAt = now, now.Add(c.pace)
	}
}

// changes are the kinds of them, in the order in which they are said.
var changes = []struct {
	warn      bool
	event     port.EventKind
	one, many string
	// is reports whether a way has changed so since before.
	is func(w *way, before said) bool
	// detail is added if it is one peer.
	detail func(w *way, now time.Time) string
}{
	{true, port.EventPeerUnanswering, "no longer answers", "no longer answer",
		func(w *way, b said) bool { return w.answers == No && b.answers == Yes },
		func(w *way, now time.Time) string { return ", the last time " + span(now.Sub(w.answered)) + " ago" }},
	{true, port.EventPeerUnanswering, "has not answered yet", "have not answered yet",
		func(w *way, b said) bool { return w.answers == No && b.answers == Unasked }, nil},
	{false, port.EventPeerUnanswering, "answers", "answer",
		func(w *way, b said) bool { return w.answers == Yes && b.answers == No }, nil},
	{true, event.PeerLossy, "loses packets", "lose packets",
		func(w *way, b said) bool { return w.answers != No && w.lossy && !b.lossy },
		func(w *way, _ time.Time) string { return ": " + w.losses() }},
	{false, event.PeerLossy, "loses no packets any more", "lose no packets any more",
		func(w *way, b said) bool { return w.answers != No && !w.lossy && b.lossy }, nil},
	{true, event.PeerLossy, "gets no large packets", "get no large packets",
		func(w *way, b said) bool { return w.answers != No && w.mtu.hole && !b.hole },
		func(w *way, _ time.Time) string { return ": " + w.fact() }},
	{false, event.PeerLossy, "gets large packets again", "get large packets again",
		func(w *way, b said) bool { return w.answers != No && !w.mtu.hole && b.hole }, nil},
}

// sayChanges says what is another than was said before, once it is time.
func (c *Core) sayChanges(now time.Time) {
	if c.sayAt.IsZero() || now.Before(c.sayAt) {
		return
	}
	if now.Sub(c.touchedSince) < gatherMost && slices.ContainsFunc(c.sorted, (*way).inDoubt) {
		c.sayAt = now.Add(time.Second)
		return
	}
	c.touchedSince, c.sayAt, c.saidAt = time.Time{}, time.Time{}, now
	for _, x := range changes {
		var ways []*way
		for _, w := range c.sorted {
			if x.is(w, w.said) {
				ways = append(ways, w)
			}
		}
		if len(ways) == 0 {
			continue
		}
		l := Line{Warn: x.warn, Event: x.event}
		if x.warn {
			l.Fact = common(ways)
		}
		names, peers := c.names(ways)
		if peers > 1 {
			l.Text = fmt.Sprintf("%d of %d peers %s: %s", peers, c.peers(), x.many, names)
		} else if l.Text = fmt.Sprintf("peer %s %s", names, x.one); x.detail != nil {
			l.Text += x.detail(ways[0], now)
		}
		c.effects = append(c.effects, Say{l})
	}
	for _, w := range c.sorted {
		if w.said.answers = w.answers; w.answers != No { // that it does not answer says enough
			w.said.lossy, w.said.hole = w.lossy, w.mtu.hole
		}
	}
}

// inDoubt reports whether a way that answered may be found not to answer any more, or to carry less.
func (w *way) inDoubt() bool {
	return w.answers == Yes && (w.missed >= 1 || w.mtu.searching || w.mtu.open)
}

// names lists the peers of ways that changed alike, the first few of them, and counts them. A peer of which
// only some ways are among them is named with an address.
func (c *Core) names(ways []*way) (list string, peers int) {
	rest := ways
	for len(rest) > 0 { // sorted by peer
		w := rest[0]
		some := 0
		for some < len(rest) && rest[some].Peer == w.Peer {
			some++
		}
		rest = rest[some:]
		if peers++; peers > named {
			continue
		}
		if peers > 1 {
			list += ", "
		}
		list += cmp.Or(w.Name, w.Peer)
		if some < c.waysOf(w.Peer) {
			list += fmt.Sprintf(" (%v)", w.Addr)
		}
	}
	if peers > named {
		list += ", …"
	}
	return list, peers
}

// waysOf counts the ways of a peer.
func (c *Core) waysOf(peer string) (n int) {
	at, _ := slices.BinarySearchFunc(c.sorted, peer, func(w *way, peer string) int {
		return cmp.Compare(w.Peer, peer)
	})
	for at+n < len(c.sorted) && c.sorted[at+n].Peer == peer {
		n++
	}
	return n
}

// peers counts nodes.
func (c *Core) peers() int {
	n := 0
	for i, w := range c.sorted {
		if i == 0 || c.sorted[i-1].Peer != w.Peer {
			n++
		}
	}
	return n
}

// losses says what is lost, in words.
func (w *way) losses() string {
	out, in := w.out.loss(windowLen), w.in.loss(windowLen)
	if w.isEcho() {
		return fmt.Sprintf("%s of the questions or their answers", percent(out))
	}
	return fmt.Sprintf("%s of what is sent to it, %s of what it sends", percent(out), percent(in))
}

func percent(l Loss) string { return fmt.Sprintf("%.0f %%", 100*l.Share()) }

// span is a time for people.
func span(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Truncate(time.Minute).String()
}

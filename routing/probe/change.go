package probe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
func (c *Core) touched(now moment) {
	if c.touchedSince.IsZero() {
		if c.pace = min(2*c.pace, slowest); c.pace == 0 || now.Sub(c.saidAt) > c.pace {
			c.pace = gather
		}
		c.touchedSince, c.sayAt = now, now.Add(c.pace)
	}
}

// sayChanges says what is another than was said before, once it is time.
func (c *Core) sayChanges(now moment) {
	if c.sayAt.IsZero() || now.Before(c.sayAt) {
		return
	}
	if now.Sub(c.touchedSince) < gatherMost && slices.ContainsFunc(c.sorted, (*way).inDoubt) {
		c.sayAt = now.Add(time.Second)
		return
	}
	c.touchedSince, c.sayAt, c.saidAt = 0, 0, now
	var silent, never, again, lossy, whole, hole, mended []*way
	for _, w := range c.sorted {
		before := w.said
		w.said = said{w.answers, w.lossy, w.mtu.hole}
		switch {
		case w.answers == No && before.answers == Yes:
			silent = append(silent, w)
		case w.answers == No && before.answers == Unasked:
			never = append(never, w)
		case w.answers == Yes && before.answers == No:
			again = append(again, w)
		}
		if w.answers == No {
			w.said.lossy, w.said.hole = before.lossy, before.hole // that it does not answer says enough
			continue
		}
		switch {
		case w.lossy && !before.lossy:
			lossy = append(lossy, w)
		case !w.lossy && before.lossy:
			whole = append(whole, w)
		}
		switch {
		case w.mtu.hole && !before.hole:
			hole = append(hole, w)
		case !w.mtu.hole && before.hole:
			mended = append(mended, w)
		}
	}
	c.say(true, port.EventPeerUnanswering, silent, "no longer answers", "no longer answer",
		func(w *way) string {
			return ", the last time " + span(now.Sub(w.answered)) + " ago"
		})
	c.say(true, port.EventPeerUnanswering, never, "has not answered yet", "have not answered yet",
		func(*way) string { return "" })
	c.say(false, port.EventPeerUnanswering, again, "answers", "answer", func(*way) string { return "" })
	c.say(true, event.PeerLossy, lossy, "loses packets", "lose packets", func(w *way) string {
		return ": " + w.losses()
	})
	c.say(false, event.PeerLossy, whole, "loses no packets any more", "lose no packets any more",
		func(*way) string { return "" })
	c.say(true, event.PeerLossy, hole, "gets no large packets", "get no large packets", func(w *way) string {
		return ": " + w.fact()
	})
	c.say(false, event.PeerLossy, mended, "gets large packets again", "get large packets again",
		func(*way) string { return "" })
}

// inDoubt reports whether a way that answered may be found not to answer any more, or to carry less.
func (w *way) inDoubt() bool {
	return w.answers == Yes && (w.missed >= 1 || w.mtu.searching || w.mtu.open)
}

// say adds a line about ways that changed alike. detail is added if it is one peer.
func (c *Core) say(warn bool, kind port.EventKind, ways []*way, one, many string,
	detail func(*way) string) {
	if len(ways) == 0 {
		return
	}
	var names []string // of the first few: there may be thousands
	peers := 0
	for i, w := range ways { // sorted by peer
		if i > 0 && ways[i-1].Peer == w.Peer {
			continue
		}
		if peers++; peers <= named {
			names = append(names, c.name(w, ways[i:]))
		}
	}
	l := Line{Warn: warn, Event: kind}
	if warn {
		l.Fact = common(ways)
	}
	if peers == 1 {
		l.Text = fmt.Sprintf("peer %s %s%s", names[0], one, detail(ways[0]))
	} else {
		list := strings.Join(names, ", ")
		if peers > named {
			list += ", …"
		}
		l.Text = fmt.Sprintf("%d of %d peers %s: %s", peers, c.peers(), many, list)
	}
	c.effects = append(c.effects, Say{l})
}

// name is the peer's, with the address if only some of its ways are among ways, which begin with them.
func (c *Core) name(w *way, ways []*way) string {
	all, some := 0, 0
	at, _ := slices.BinarySearchFunc(c.sorted, w.Peer, func(o *way, peer string) int {
		return cmp.Compare(o.Peer, peer)
	})
	for ; at < len(c.sorted) && c.sorted[at].Peer == w.Peer; at++ {
		all++
	}
	for some < len(ways) && ways[some].Peer == w.Peer {
		some++
	}
	name := cmp.Or(w.Name, w.Peer)
	if all == some {
		return name
	}
	return fmt.Sprintf("%s (%v)", name, w.Addr)
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
	out, in := lossOf(&w.out, windowLen), lossOf(&w.in, windowLen)
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

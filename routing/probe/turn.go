package probe

import (
	"container/heap"
	"time"
)

const (
	// every is the time between two turns of a way, give or take a tenth.
	every = 10 * time.Second
	// perSecond is how many datagrams and echo requests a node sends for its turns at the most, and burst how
	// many at once. Of these regular is what the turns of healthy ways may take; with more ways than that
	// suffices for, each has its turn less often.
	perSecond, burst = 100, 40
	regular          = 80
	// knownAfter is how long a new peer is not asked: this node may be as new to it, and a stranger whose
	// packets it drops and counts.
	knownAfter = time.Second
	// patience is how long an answer may take before the way has its next turn.
	patience = time.Second
	// silentFor and silentTurns are for how long, and for how many turns, a peer that has answered gives no
	// answer before it counts as one that does not answer: a restart is over by then. unaskedFor is the same for
	// a peer that has never answered: it may be about to start.
	silentFor, silentTurns, unaskedFor = 8 * time.Second, 5, 20 * time.Second
	// downEvery is the time between turns of a way that does not answer.
	downEvery = 5 * time.Second
	// lookFor is how long a way is asked every patience after something was lost, and lookAgain the least time
	// from the end of one to the next. lossyEvery is the time between turns while the loss is high.
	lookFor, lookAgain, lossyEvery = 20 * time.Second, 15 * time.Second, 2 * time.Second
	// padAfter is how long after the small questions of a turn a long one follows. Packets that leave together
	// may share a datagram, and the small ones would be lost with the long one.
	padAfter = 30 * time.Millisecond
	// stepEvery is the least time between two steps of the search for the path MTU.
	stepEvery = 200 * time.Millisecond
	// hurried is how many other ways have their turn at once when one is found not to answer, or to answer
	// again, to know whether it is alone.
	hurried = 64
	// narrowFor is how long it counts that this host knows of a smaller path MTU, as in the kernel.
	narrowFor = 10 * time.Minute
	// claimTries is how often the usual size is tried after somebody said that it is too large.
	claimTries = 3
	// thawed is for how many turns a way was silent whose answer, when it comes, says nothing of the round trip.
	thawed = 2
	// minRTTFor is how long the shortest round trip is kept.
	minRTTFor = 10 * time.Minute
)

// interval is the time to the next turn of a way that is well.
func (c *Core) interval() time.Duration {
	d := max(every, time.Duration(len(c.ways)*c.questions())*time.Second/regular)
	return d - d/10 + c.random(d/5)
}

// questions is how many questions a turn has. Two in place of one show a loss sooner, where there is room for
// them.
func (c *Core) questions() int {
	if time.Duration(2*len(c.ways))*time.Second/regular > every {
		return 1
	}
	return 2
}

// random is from 0 to below d.
func (c *Core) random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(c.rand() % uint64(d))
}

// turns lets every way that is due have its turn, as long as there is room below perSecond.
func (c *Core) turns(now time.Time) {
	if !c.blind.IsZero() {
		return
	}
	for len(c.queue) > 0 && !c.queue[0].due.After(now) {
		if c.sending.TokensAt(now) < 1 {
			c.resume = now.Add(50 * time.Millisecond)
			return
		}
		before := len(c.effects)
		c.turn(c.queue[0], now)
		c.sending.ReserveN(now, len(c.effects)-before)
	}
	c.resume = time.Time{}
}

// turn asks one way.
func (c *Core) turn(w *way, now time.Time) {
	if w.pad > 0 {
		c.question(w, w.pad, now)
		w.pad = 0
		c.put(w, now.Add(c.patienceFor(w, now)))
		return
	}
	if w.silent.IsZero() {
		tries := lostTries
		if w.told > 0 {
			tries = lossyTries
		}
		if w.mtu.turn(w.leastMTU(), tries, now) {
			c.touched(now)
			c.tryOthersOf(w, now)
		}
	} else {
		w.missed++
		w.mtu.forgive()
		c.judge(w, now)
	}
	if w.narrow > 0 && now.After(w.narrowUntil) {
		w.narrow = 0
		w.mtu.limit(w.MTU)
	}
	c.ask(w, now)
	if w.silent.IsZero() {
		w.silent = now
	}
	if w.answers == No {
		c.put(w, now.Add(downEvery))
		return
	}
	if w.pad > 0 {
		c.put(w, now.Add(padAfter))
		return
	}
	c.put(w, now.Add(c.patienceFor(w, now)))
}

// patienceFor is the time to the next turn of a way that has just been asked.
func (c *Core) patienceFor(w *way, now time.Time) time.Duration {
	if w.silent.IsZero() { // it has answered in between
		return c.pause(w, now)
	}
	return patience + min(2*w.rtt, 2*patience)
}

// judge decides whether a way that is silent counts as one that does not answer.
func (c *Core) judge(w *way, now time.Time) {
	long := silentFor
	if w.answers == Unasked {
		long = unaskedFor
	}
	if w.answers == No || w.missed < silentTurns || now.Sub(w.silent) < long {
		return
	}
	if w.answers == Yes {
		c.hurry(Yes, now)
	}
	w.answers, w.since = No, now
	w.lossy, w.told = false, 0
	c.touched(now)
}

// hurry gives other ways that answer, or others that do not, their turn soon.
func (c *Core) hurry(which Answers, now time.Time) {
	n := 0
	for _, o := range c.sorted {
		if n == hurried {
			return
		}
		if o.answers == which && (which == No || o.silent.IsZero()) && o.due.After(now.Add(patience)) {
			c.put(o, now.Add(c.random(patience)))
			n++
		}
	}
}

// tryOthersOf has the largest size tried on the other ways of w's peer, since what lies between two nodes is
// the same for each.
func (c *Core) tryOthersOf(w *way, now time.Time) {
	for _, o := range c.sorted {
		if o != w && o.Peer == w.Peer && o.answers == Yes && o.mtu.hole != w.mtu.hole {
			o.mtu.due, o.mtu.again = now, false
			if o.silent.IsZero() {
				c.put(o, now)
			}
		}
	}
}

// answer takes in that an answer came to question q.
func (c *Core) answer(w *way, q asked, now time.Time) {
	switch d := now.Sub(q.at); {
	case q.size > 0 && w.refutes(q.size, now):
	case q.size > 0:
		if w.mtu.answeredSize(q.size, now) {
			c.touched(now)
			c.tryOthersOf(w, now)
		}
	case w.missed >= thawed && w.rtt > 0: // the peer, or this node, was frozen: that is no time on the way
	default: // a long packet would take longer
		if w.rtt == 0 {
			w.rtt = d
		}
		w.rtt += (d - w.rtt) / 8
		if w.minRTT == 0 || d < w.minRTT || now.After(w.minUntil) {
			w.minRTT, w.minUntil = d, now.Add(minRTTFor)
		}
	}
	w.answered, w.heard = now, now
	w.silent, w.missed, w.unsent = time.Time{}, 0, ""
	if before := w.answers; before != Yes {
		w.answers, w.since = Yes, now
		c.touched(now)
		if before == No {
			c.hurry(No, now)
		}
	}
	c.watchLoss(w, now)
	if w.pad == 0 {
		c.put(w, now.Add(c.pause(w, now)))
	}
}

// pause is the time to the next turn of a way that answers.
func (c *Core) pause(w *way, now time.Time) time.Duration {
	switch {
	case w.mtu.busy():
		return min(patience, 4*w.rtt+stepEvery)
	case now.Before(w.closer):
		return patience
	case w.lossy:
		return lossyEvery
	}
	return c.interval()
}

// The loss is high if of the newest highOf datagrams at least highLost were lost, and over below lowLoss of
// all that are known, if these are highOf at least.
const (
	highLost, highOf = 6, 32
	lowLoss          = 0.05
)

// watchLoss looks at what was lost, and whether that is much.
func (c *Core) watchLoss(w *way, now time.Time) {
	if !c.blind.IsZero() {
		return
	}
	out, in := w.out.loss(windowLen), w.in.loss(windowLen)
	lost := out.Lost + in.Lost
	if lost > w.told && now.After(w.closer.Add(lookAgain)) {
		w.closer = now.Add(lookFor)
		if soon := now.Add(patience); w.due.After(soon) {
			c.put(w, soon)
		}
	}
	w.told = lost
	high := func(x *window) bool { return x.loss(highOf).Lost >= highLost }
	if was := w.lossy; !was && (high(&w.out) || high(&w.in)) {
		w.lossy = true
		c.touched(now)
	} else if was && out.Of >= highOf && out.Share() < lowLoss && in.Share() < lowLoss {
		w.lossy = false
		c.touched(now)
	}
}

// queue is a heap of ways, by due.
type queue []*way

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].at, q[j].at = i, j }

// Push implements heap.Interface.
func (q *queue) Push(x any) { w := x.(*way); w.at = len(*q); *q = append(*q, w) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	n := len(*q) - 1
	w := (*q)[n]
	(*q)[n] = nil
	*q = (*q)[:n]
	return w
}

// put has the way's next turn at due.
func (c *Core) put(w *way, due time.Time) {
	w.due = due
	heap.Fix(&c.queue, w.at)
}

package probe

import "time"

// tell answers the inquiry d, with a page that is not longer.
func (c *Core) tell(w *way, d Datagram, b []byte, now time.Time) {
	q, err := parseInquiry(b)
	if err != nil || !w.limits.accounts.AllowN(now, 1) || !c.limits.accounts.AllowN(now, 1) {
		return
	}
	w.heard = now
	a := c.count()
	a.Only, a.From = q.Only, q.From
	room := min((len(b)-accountSize)/entrySize, mostEntries)
	for i := int(min(int64(q.From), int64(len(c.sorted)))); i < len(c.sorted); i++ {
		cell := c.cell(c.sorted[i], now)
		if q.Only && !cell.Troubled() {
			continue
		}
		if len(a.cells) == room {
			a.Next = uint32(i)
			break
		}
		a.cells = append(a.cells, cell)
	}
	answer := c.datagram(w, Account, 0, d.Nonce)
	answer.Length = d.Length
	page, err := answer.Append(nil)
	if err != nil {
		return // Parse would have refused the inquiry
	}
	c.deliver(w, a.append(page))
}

// mostEntries is how many entries a page has at the most.
const mostEntries = 64

// count is an account without entries.
func (c *Core) count() account {
	a := account{accountBody: accountBody{Of: uint32(len(c.sorted)), Generation: c.mark}}
	for _, w := range c.sorted {
		switch w.answers {
		case Yes:
			a.Answering++
			if w.lossy || w.mtu.hole {
				a.Lossy++
			}
		case No:
			a.Silent++
		case Unasked:
		}
	}
	return a
}

// cell is what this node knows of a way.
func (c *Core) cell(w *way, now time.Time) Cell {
	out := Cell{
		Peer: w.Peer, Addr: w.Addr, ByICMP: w.isEcho(), Answers: w.answers, For: now.Sub(w.since), Out: -1, In: -1,
		PathMTU: w.mtu.passed, Silence: w.silence(), Heard: w.answers == Yes || w.heard.After(w.silent),
	}
	if w.answers == Yes {
		out.RTT, out.Lossy, out.Hole = w.rtt.Truncate(time.Microsecond), w.lossy, w.mtu.hole
		out.Out, out.In = w.out.loss(windowLen).percent(), w.in.loss(windowLen).percent()
	}
	return out
}

// percent rounds a loss, but none that there is to 0; -1 if nothing is known.
func (l Loss) percent() int {
	switch {
	case l.Of == 0:
		return -1
	case l.Lost == 0:
		return 0
	}
	return max(1, int(100*l.Share()+0.5))
}

package probe

import "time"

// Accounts are given to a peer at accountsPerSecond at the most, accountsBurst at once, and to all of them
// together at allAccountsPerSecond.
const (
	accountsPerSecond, accountsBurst       = 20, 60
	allAccountsPerSecond, allAccountsBurst = 200, 400
)

// tell answers the inquiry d, with a page that is not longer.
func (c *Core) tell(w *way, d Datagram, b []byte, now moment) {
	q, err := parseInquiry(b)
	if err != nil || !allow(&w.tellable, &w.tellFrom, accountsPerSecond, accountsBurst, now) ||
		!allow(&c.tellable, &c.tellFrom, allAccountsPerSecond, allAccountsBurst, now) {
		return
	}
	w.heard = now
	a := c.count()
	a.only, a.from = q.only, q.from
	room := min((len(b)-accountSize)/entrySize, mostEntries)
	for i := int(min(int64(q.from), int64(len(c.sorted)))); i < len(c.sorted); i++ {
		cell := c.cell(c.sorted[i], now)
		if q.only && !cell.Troubled() {
			continue
		}
		if len(a.cells) == room {
			a.next = uint32(i)
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
	a := account{of: uint32(len(c.sorted)), made: c.mark}
	for _, w := range c.sorted {
		switch w.answers {
		case Yes:
			a.answering++
			if w.lossy || w.mtu.hole {
				a.lossy++
			}
		case No:
			a.silent++
		case Unasked:
		}
	}
	return a
}

// cell is what this node knows of a way.
func (c *Core) cell(w *way, now moment) Cell {
	out := Cell{
		Peer: w.Peer, Addr: w.Addr, ByICMP: w.isEcho(), Answers: w.answers, For: now.Sub(w.since), Out: -1, In: -1,
		PathMTU: int(w.mtu.passed), Silence: w.silence(), Heard: w.answers == Yes || !w.heard.IsZero() &&
			w.heard.After(w.silent),
	}
	if w.answers == Yes {
		out.RTT, out.Lossy, out.Hole = w.rtt.Truncate(time.Microsecond), w.lossy, w.mtu.hole
		if l := lossOf(&w.out, windowLen); l.Of > 0 {
			out.Out = percentOf(l)
		}
		if l := lossOf(&w.in, windowLen); l.Of > 0 {
			out.In = percentOf(l)
		}
	}
	return out
}

// percentOf rounds a loss, but none that there is to 0.
func percentOf(l Loss) int {
	if l.Lost == 0 {
		return 0
	}
	return max(1, int(100*l.Share()+0.5))
}

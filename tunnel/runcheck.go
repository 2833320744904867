package tunnel

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"weft/encap"
)

const (
	// runLen is how many datagrams a run has that is checked, and how many are sent by themselves around it. The known fault
	// hits runs of datagrams of one size. runSize is that size in bytes of UDP payload: it fits every path of IPv4.
	runLen, runSize = 4, 512
	// wholeRun has a bit for each datagram of the run.
	wholeRun = 1<<runLen - 1
	// runTwice is how many rounds have to show that nothing of a run arrives, and runOften that the same part of it never does:
	// a part is lost by chance now and then. runRounds is after how many rounds a check without a result ends.
	runTwice, runOften, runRounds = 2, 8, 16
	// runGap is the least time between two rounds, whoever is asked: so little is sent that no peer and no path minds.
	runGap = time.Second
	// runAway is how long a peer may stay silent before another is asked in its place.
	runAway = time.Minute
	// runEvery is how long the word of a peer is good.
	runEvery = time.Hour
)

// errRunBroken is why udp-gso is given up.
var errRunBroken = errors.New("datagrams that were sent in one call do not arrive whole, and those that were sent alone do")

// runCheck finds out whether runs of datagrams arrive: the kernel and devices cut them, and some break what they cut without an error (Linux
// 7.0 to 7.1.4, on devices that do a part of it: GSO_PARTIAL). A round is a run, and as many datagrams by themselves, half of them before
// it and half behind. The peer answers each that arrives whole. A round counts only if all of the second kind did, so that losses, a slow
// peer and a full budget of answers prove nothing. It is safe for concurrent use.
type runCheck struct {
	mu      sync.Mutex
	since   int64      // what peers said before is void, Unix nanoseconds
	of      *peerState // who is asked; nil for nobody
	token   uint64     // of the last round, with runBits free for the datagram's number
	came    uint8      // what of the last round arrived: the run's datagrams are the low bits
	lacked  uint8      // what of the run never arrived
	rounds  int        // how many there were, and counted those that count
	counted int
	sent    int64 // when the last round was, Unix nanoseconds
}

// runBits are the token's bits that number the datagrams of a round.
const runBits = 2*runLen - 1

// next says what is to be done about a peer, from whom something has just arrived. A token that is not 0 begins a round. broken ends the
// check, and says that runs do not arrive.
func (c *runCheck) next(s *peerState, now int64) (token uint64, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now-c.sent < int64(runGap):
		return 0, false
	case c.of == s:
		c.conclude()
	case c.of != nil && now-c.sent < int64(runAway), s.runsAsked != 0 && s.runsAsked >= c.since && now-s.runsAsked < int64(runEvery):
		return 0, false
	default:
		if c.of != nil {
			c.of.runsAsked = 0 // it may come again
		}
		c.of, c.lacked, c.rounds, c.counted = s, wholeRun, 0, 0
		s.runsAsked = now
	}
	broken = c.lacked == wholeRun && c.counted == runTwice || c.lacked != 0 && c.counted == runOften
	if c.lacked == 0 || broken || c.rounds == runRounds {
		c.of = nil
		return 0, broken
	}
	c.rounds++
	c.came, c.sent, c.token = 0, now, newToken()&^runBits
	return c.token, false
}

// conclude takes in the last round. mu is held.
func (c *runCheck) conclude() {
	if c.came>>runLen == wholeRun {
		c.lacked &^= c.came
		c.counted++
	}
}

// answered takes in that a datagram of length bytes has arrived at a peer. It reports whether it was one of the last round.
func (c *runCheck) answered(s *peerState, token uint64, length int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != s || token&^runBits != c.token || length != runSize {
		return false
	}
	if c.came |= 1 << (token & runBits); c.came == 1<<(2*runLen)-1 {
		c.of = nil // all is well, and the next peer can be asked
	}
	return true
}

// doubt makes void what peers have said.
func (c *runCheck) doubt(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.of = now, nil
}

// DoubtRuns has peers asked anew whether runs of datagrams arrive, and an underlay that gave them up try again: the devices that cut
// them are others now, or do it in another way.
func (e *Engine) DoubtRuns() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs.doubt(e.now())
	for _, a := range e.attached {
		if a.runs != nil && a.runs.state.CompareAndSwap(uint32(OffloadBroken), uint32(OffloadOn)) {
			e.log.Info("offload is tried again", "offload", a.runs.what.String(), "port", a.local.String())
		}
	}
}

// checkRuns asks a peer, from which something has just arrived, whether runs do, if it is time to.
func (w *worker) checkRuns(peer *Peer) {
	under := w.under(peer)
	if !peer.probes || peer.spec.Recv&RecvRuns == 0 || under == nil || under.runs == nil || !under.runs.on() {
		return
	}
	token, broken := w.engine.runs.next(peer.state, w.now)
	if broken {
		under.runs.giveUp(OffloadBroken, w.engine.log.With("peer", peer.spec.Name), under.local.String(), errRunBroken)
	}
	if token == 0 {
		return
	}
	to := peer.outer(w.engine.cfg.Port)
	for k := range uint64(runLen / 2) {
		w.sendRun(under, to, token+runLen+k, 1)
	}
	w.sendRun(under, to, token, runLen)
	for k := range uint64(runLen / 2) {
		w.sendRun(under, to, token+runLen+runLen/2+k, 1)
	}
}

// sendRun sends n probes in one call. Nothing of the batch is in use any more. One that cannot be sent is one that is lost.
func (w *worker) sendRun(under *attached, to netip.AddrPort, token uint64, n int) {
	out := w.ring.out[:0]
	for k := range n {
		p, at := &w.ring.more[k], k*runSize
		p.state = state{buf: w.ring.reply.buf, off: at, end: at + runSize, Outer: to, segments: 1}
		encap.AppendProbe(p.buf[:at], encap.Probe{Whole: true, Length: runSize, Token: token + uint64(k)})
		if out = append(out, p); w.look != nil {
			w.look.sent(w, under, p)
		}
	}
	under.port.WriteBatch(w.ring, out)
}

package tunnel

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"weft/encap"
	"weft/tunnel/pathmtu"
	"weft/tunnel/port"
)

const (
	// A run of runLen datagrams is checked, and as many are sent alone around it. All have runSize bytes of
	// UDP payload: the known fault hits runs of one size, and every path carries this one.
	runLen, runSize = 4, 512
	// runBits are the bits of a token that number the datagrams of a round. wholeRun has a bit for each of
	// the run.
	runBits  = 2*runLen - 1
	wholeRun = 1<<runLen - 1
	// A run is broken if nothing of it arrives in runTwice rounds. Chance loses a part of it more easily, so
	// the same part has to be missing in runOften. A check without a result ends after runRounds.
	runTwice, runOften, runRounds = 2, 8, 16
	// runGap is the least time between two rounds, whoever is asked: it bounds what a node sends for all its
	// peers.
	runGap = time.Second
	// runAway is how long a peer may stay silent before another is asked in its place.
	runAway = time.Minute
	// runEvery is how long the word of a peer is good.
	runEvery = time.Hour
)

// errRunBroken is why udp-gso is given up.
var errRunBroken = errors.New("datagrams sent in one call do not arrive whole, and single ones do")

// runCheck finds out whether runs of datagrams arrive. The kernel or the device cuts them, and some break
// them without an error: Linux 7.0 to 7.1.4 does so on devices that do a part of the work (GSO_PARTIAL).
//
// A round is a run with single datagrams before and behind it, and the peer answers each that arrives whole.
// The round counts only if all single ones arrived: losses, a slow peer or a spent budget of answers prove
// nothing. The token is a secret, so only a peer that has received a datagram can answer it. It is safe for
// concurrent use.
type runCheck struct {
	mu      sync.Mutex
	since   int64      // checks that began earlier are void, Unix nanoseconds
	of      *peerState // the peer that is asked; nil for nobody
	token   uint64     // of the last round, with runBits 0
	came    uint8      // a bit for each datagram of the last round that arrived, those of the run first
	lacked  uint8      // the datagrams of the run that arrived in no round
	rounds  int        // how many there were; counted are those that count
	counted int
	sent    int64 // when the last round was, Unix nanoseconds
}

// next decides what to do about a peer from which something has just arrived. A token that is not 0 begins a
// round. broken says that runs do not arrive, and ends the check.
func (c *runCheck) next(s *peerState, now int64) (token uint64, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now-c.sent < int64(runGap):
		return 0, false
	case c.of == s:
		c.conclude()
	case c.of != nil && now-c.sent < int64(runAway):
		return 0, false
	case s.runsAsked != 0 && s.runsAsked >= c.since && now-s.runsAsked < int64(runEvery):
		return 0, false
	default:
		if c.of != nil {
			c.of.runsAsked = 0 // its check had no result: it is asked again when it is heard
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
	c.came, c.sent, c.token = 0, now, pathmtu.NewToken()&^runBits
	return c.token, false
}

// conclude takes in the last round. mu is held.
func (c *runCheck) conclude() {
	if c.came>>runLen == wholeRun {
		c.lacked &^= c.came
		c.counted++
	}
}

// answered notes that a datagram of length bytes arrived at a peer. It reports whether that was one of the
// last round.
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

// doubt makes earlier checks void.
func (c *runCheck) doubt(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.of = now, nil
}

// DoubtRuns makes the engine ask peers again whether runs of datagrams arrive, and try runs again where they
// were broken. Call it when other devices segment the runs now, or when the devices segment them in another
// way.
func (e *Engine) DoubtRuns() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs.doubt(e.now())
	for _, a := range e.attached {
		if a.runs != nil && a.runs.TryAgain() {
			e.log.Info("offload is tried again", "offload", a.runs.What.String(), "port", a.local.String())
		}
	}
}

// checkRuns asks a peer from which something has just arrived whether runs arrive there, if that is due.
func (w *worker) checkRuns(peer *Peer) {
	under := w.set.under(peer)
	if !peer.probes || peer.spec.Recv&port.RecvRuns == 0 {
		return
	}
	if under == nil || under.runs == nil || !under.runs.On() {
		return
	}
	token, broken := w.engine.runs.next(peer.state, w.now)
	if broken {
		log := w.engine.log.With("peer", peer.spec.Name)
		under.runs.GiveUp(port.OffloadBroken, log, under.local.String(), errRunBroken)
	}
	if token == 0 {
		return
	}
	w.asked = peer.spec.Addr
	time.AfterFunc(runGap, w.wake)
	to := peer.outer(w.engine.cfg.Port)
	for k := range uint64(runLen / 2) {
		w.sendRun(under, to, token+runLen+k, 1)
	}
	w.sendRun(under, to, token, runLen)
	for k := range uint64(runLen / 2) {
		w.sendRun(under, to, token+runLen+runLen/2+k, 1)
	}
}

// wake has the worker look at what came of a round, also if the peer sends nothing more.
func (w *worker) wake() {
	w.engine.mu.Lock() // the poller is there until the engine is closed
	defer w.engine.mu.Unlock()
	if !w.engine.closed.Load() {
		w.poll.ring()
	}
}

// recheckRuns goes on with the peer that was asked, if it is one still.
func (w *worker) recheckRuns() {
	addr := w.asked
	if w.asked = (netip.Addr{}); !addr.IsValid() {
		return
	}
	e := w.engine
	w.epoch.Add(1)
	w.batch = batch{table: e.table.Load(), set: e.ports.Load(), flow: &w.tally.ingress, now: e.now(),
		look: e.looks.Load()}
	w.ring.Reset(w.now)
	if peer := w.table.senders[addr]; peer != nil {
		w.checkRuns(peer)
	}
	w.batch = batch{}
	w.epoch.Add(1)
}

// sendRun sends n probes in one call. It uses the memory of a batch that is done with. A datagram that cannot
// be sent is lost.
func (w *worker) sendRun(under *attached, to netip.AddrPort, token uint64, n int) {
	out := w.out[:0]
	for k := range n {
		p := w.ring.Lend(k, runSize)
		p.Outer = to
		encap.AppendProbe(p.Bytes()[:0], encap.Probe{Whole: true, Length: runSize, Token: token + uint64(k)})
		if out = append(out, p); w.look != nil {
			w.look.sent(w, under, p, nil)
		}
	}
	under.port.WriteBatch(w.ring, out)
}

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
	// A check sends a run of runLen datagrams, and as many single ones around it. All have runSize bytes of UDP
	// payload, because the known fault hits runs of equal datagrams. Every path carries this size.
	runLen, runSize = 4, 512
	// runBits are the bits of a token that number the datagrams of a round. wholeRun has a bit for each datagram
	// of the run.
	runBits  = 2*runLen - 1
	wholeRun = 1<<runLen - 1
	// Runs are broken if no datagram of the run arrives in allMissing rounds. Loss takes a part of a run more
	// easily, so the same part must be missing in partMissing rounds. A check without a result ends after
	// maxRounds.
	allMissing, partMissing, maxRounds = 2, 8, 16
	// runGap is the least time between two rounds. It bounds what a node sends for all its peers.
	runGap = time.Second
	// runAway is how long a peer may be silent before another peer is checked instead.
	runAway = time.Minute
	// runEvery is how long the result of a peer is valid.
	runEvery = time.Hour
)

// errRunBroken is the cause for which udp-gso is turned off.
var errRunBroken = errors.New("datagrams sent in one call do not arrive whole, and single ones do")

// runCheck finds out whether runs of datagrams arrive. The kernel or the device segments them, and some
// corrupt them without an error. Linux 7.0 to 7.1.4 does so on devices with GSO_PARTIAL.
//
// A round is a run with single datagrams before and after it. The peer answers each datagram that arrives
// intact. A round counts only if all single datagrams arrived, since loss, a slow peer or its rate limit for
// answers prove nothing. The token is secret, so only a peer that received a datagram can answer it. runCheck
// is safe for concurrent use.
type runCheck struct {
	mu      sync.Mutex
	since   int64      // earlier checks are void, Unix nanoseconds
	peer    *peerState // the peer being checked; nil if none
	token   uint64     // of the last round, with runBits 0
	arrived uint8      // a bit for each datagram of the last round that arrived, the run's in the low bits
	missing uint8      // datagrams of the run that arrived in no round that counted
	rounds  int        // rounds sent; counted of them were conclusive
	counted int
	sent    int64 // when the last round was sent, Unix nanoseconds
}

// next decides whether to check a peer from which a packet has just arrived. A token other than 0 starts a
// round. broken means that runs do not arrive, and ends the check.
func (c *runCheck) next(s *peerState, now int64) (token uint64, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case now-c.sent < int64(runGap):
		return 0, false
	case c.peer == s:
		c.conclude()
	case c.peer != nil && now-c.sent < int64(runAway):
		return 0, false
	case s.runsChecked != 0 && s.runsChecked >= c.since && now-s.runsChecked < int64(runEvery):
		return 0, false
	default:
		if c.peer != nil {
			c.peer.runsChecked = 0 // its check had no result: check it again when a packet arrives
		}
		c.peer, c.missing, c.rounds, c.counted = s, wholeRun, 0, 0
		s.runsChecked = now
	}
	broken = c.missing == wholeRun && c.counted == allMissing || c.missing != 0 && c.counted == partMissing
	if c.missing == 0 || broken || c.rounds == maxRounds {
		c.peer = nil
		return 0, broken
	}
	c.rounds++
	c.arrived, c.sent, c.token = 0, now, pathmtu.NewToken()&^runBits
	return c.token, false
}

// conclude evaluates the last round. mu is held.
func (c *runCheck) conclude() {
	if c.arrived>>runLen == wholeRun {
		c.missing &^= c.arrived
		c.counted++
	}
}

// answered records that a datagram of length bytes arrived at a peer. It reports whether the datagram was one
// of the last round.
func (c *runCheck) answered(s *peerState, token uint64, length int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peer != s || token&^runBits != c.token || length != runSize {
		return false
	}
	if c.arrived |= 1 << (token & runBits); c.arrived == 1<<(2*runLen)-1 {
		c.peer = nil // all arrived: the next peer can be checked
	}
	return true
}

// invalidate makes earlier checks void.
func (c *runCheck) invalidate(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.peer = now, nil
}

// RecheckRuns makes the engine check again whether runs of datagrams arrive, and tries runs again where they
// were broken. Call it when other devices segment the runs, or when a device's offloads changed.
func (e *Engine) RecheckRuns() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs.invalidate(e.now())
	for _, a := range e.attached {
		if a.runs != nil && a.runs.Retry() {
			e.log.Info("retrying offload", "offload", a.runs.What.String(), "port", a.local.String())
		}
	}
}

// checkRuns checks whether runs arrive at a peer from which a packet has just arrived, if a check is due.
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
		under.runs.TurnOff(port.OffloadBroken, log, under.local.String(), errRunBroken)
	}
	if token == 0 {
		return
	}
	w.probedPeer = peer.spec.Addr
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

// wake makes the worker evaluate a round even if the peer sends nothing more.
func (w *worker) wake() {
	w.engine.mu.Lock() // the poller exists until the engine is closed
	defer w.engine.mu.Unlock()
	if !w.engine.closed.Load() {
		w.poll.wakeup()
	}
}

// recheckRuns continues the check of the peer that was last checked, if it is still a peer.
func (w *worker) recheckRuns() {
	addr := w.probedPeer
	if w.probedPeer = (netip.Addr{}); !addr.IsValid() {
		return
	}
	e := w.engine
	w.epoch.Add(1)
	w.batch = batch{table: e.table.Load(), set: e.ports.Load(), flow: &w.tally.ingress, now: e.now(),
		captures: e.captures.Load()}
	w.ring.Reset(w.now)
	if peer := w.table.senders[addr]; peer != nil {
		w.checkRuns(peer)
	}
	w.batch = batch{}
	w.epoch.Add(1)
}

// sendRun sends n probes in one call, from the memory of a finished batch. Failing to send one counts as
// loss.
func (w *worker) sendRun(under *attachedPort, to netip.AddrPort, token uint64, n int) {
	out := w.out[:0]
	for k := range n {
		p := w.ring.Scratch(k, runSize)
		p.Outer = to
		encap.AppendProbe(p.Bytes()[:0], encap.Probe{Whole: true, Length: runSize, Token: token + uint64(k)})
		if out = append(out, p); w.captures != nil {
			w.captures.datagramSent(w, under, p, nil)
		}
	}
	under.port.WriteBatch(w.ring, out)
}

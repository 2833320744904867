// Package pathmtu decides how far claims about the path MTU to a peer are believed. It does no I/O.
package pathmtu

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weft/encap"
)

// AnswerTime is how long a check waits for the answers to its probes: longer than a round trip almost
// anywhere.
const AnswerTime = 250 * time.Millisecond

// Limits on what a packet-too-big message can make us do. Anyone who can guess
// our ports can send one.
const (
	// provenLife is how long a path MTU holds that probes have proven (RFC 1191 section 6.3, RFC 8201
	// section 4: ten minutes), after which the underlay's own MTU is tried again; claimedLife
	// is for one that nobody vouches for. A claim made again renews it.
	provenLife  = 10 * time.Minute
	claimedLife = time.Minute
	// changeGap is the least time between two changes for one peer.
	changeGap = 100 * time.Millisecond
	// checkGap is the least time from one check to the next.
	checkGap = time.Second
)

// Path is the outer MTU towards one peer, as packet-too-big messages have it and probes prove it.
// The zero value has learnt nothing. It is safe for concurrent use.
type Path struct {
	mtu     atomic.Uint32 // bytes; 0 if none
	expires atomic.Int64  // Unix nanoseconds

	mu      sync.Mutex // guards what follows, of which packets know nothing
	proven  bool
	changed int64 // Unix nanoseconds
	check   Check
}

// Check is a claim that probes are to prove or refute. The zero Check is none.
type Check struct {
	Token        uint64 // of its probes
	claimed, was int    // outer MTUs: what is claimed, and what was in force or the link's
	Cost         int    // bytes that the outer headers take
	came         int    // the longest probe that arrived, an outer size; 0 if none is known to
	done         bool
	began        int64 // Unix nanoseconds
	// To put back if the larger probe turns out to have arrived after all.
	before  uint32
	expires int64
	proven  bool
}

// Get is the MTU in force at now (Unix nanoseconds), or 0.
func (m *Path) Get(now int64) int {
	v := m.mtu.Load()
	if v == 0 || now >= m.expires.Load() {
		return 0
	}
	return int(v)
}

// floor is the least MTU that probes can prove of the path to dst (RFC 1122 section 3.3.3, RFC 8200 section
// 5).
func floor(dst netip.Addr) int {
	if dst.Is6() {
		return encap.MinMTU6
	}
	return encap.MinMTU4
}

// unbelievable says whether a claim about the path to dst is not worth a look: of an old router that does not
// say a value (RFC 1191 section 5), and over IPv6 of less than every link has to take (RFC 8201 section 4),
// by which a sender was made to put fragment headers into whole packets.
func unbelievable(dst netip.Addr, claimed int) bool {
	return claimed <= 0 || dst.Is6() && claimed < encap.MinMTU6
}

// Learn takes what a message claimed about the path to dst, to which datagrams of up to sent bytes leave,
// outer headers included, and which answers no probes. A claim alone does not lead below 1280, which IPv6 and
// QUIC count on, also over IPv4. It reports whether that changed anything.
func (m *Path) Learn(dst netip.Addr, claimed, sent int, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if unbelievable(dst, claimed) {
		return false
	}
	return m.lower(max(claimed, encap.MinMTU6), sent, now)
}

// lower puts an MTU in force that nobody has proven. mu is held.
func (m *Path) lower(mtu, sent int, now int64) bool {
	if mtu >= sent {
		return false // nothing that we do not know
	}
	cur := m.Get(now)
	if m.changed != 0 && now-m.changed < int64(changeGap) || cur != 0 && mtu > cur {
		return false // a larger one counts only after this one expires
	}
	if cur == mtu && m.proven {
		return false
	}
	return m.set(uint32(mtu), now+int64(claimedLife), false, now)
}

// set puts an MTU in force, or none if it is 0. mu is held.
func (m *Path) set(mtu uint32, expires int64, proven bool, now int64) (changed bool) {
	m.changed, m.proven = now, proven
	m.expires.Store(expires)
	return m.mtu.Swap(mtu) != mtu
}

// Sizes are the outer sizes that the probes of c have: what is claimed, and what was in force. For a claim of
// less than 1280 they include 1280, or a claim that somebody made up would pass for proven on a path that is
// only somewhat narrower than what was in force.
func (c *Check) Sizes() [3]int {
	mid := c.claimed
	if c.claimed < encap.MinMTU6 && encap.MinMTU6 < c.was {
		mid = encap.MinMTU6
	}
	return [3]int{c.claimed, mid, c.was}
}

// Doubt begins to check a claim by probes; cost is what the outer headers take, in bytes. It is
// false if there is nothing to check, if one is being checked, or if one was a moment ago.
func (m *Path) Doubt(dst netip.Addr, claimed, sent, cost int, now int64) (c Check, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cur := m.Get(now); cur != 0 {
		sent = min(sent, cur)
	}
	was := &m.check
	if unbelievable(dst, claimed) || max(claimed, floor(dst)) >= sent || was.Token != 0 && !was.done ||
		was.began != 0 && now-was.began < int64(checkGap) {
		return Check{}, false
	}
	m.check = Check{Token: NewToken(), claimed: max(claimed, floor(dst)), was: sent, Cost: cost, began: now,
		before: m.mtu.Load(), expires: m.expires.Load(), proven: m.proven}
	return m.check, true
}

// Answered takes what the peer says has arrived, in bytes of UDP payload. It reports whether that refutes the
// claim: a probe as long as what we send arrived, be it after the check was concluded.
func (m *Path) Answered(token uint64, length int, now int64) (refuted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.check
	if c.Token == 0 || token != c.Token {
		return false
	}
	if outer := length + c.Cost; outer < c.was {
		c.came = max(c.came, outer)
		return false
	}
	if c.done {
		m.set(c.before, c.expires, c.proven, now)
	}
	c.Token, c.done = 0, true // further answers say the same
	return true
}

// Conclude ends the check of that token, when answers have had their time. It reports whether the MTU
// is another now, and whether probes have proven it.
func (m *Path) Conclude(token uint64, now int64) (changed, proven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.check
	if c.Token != token || c.done {
		return false, false
	}
	c.done = true
	if c.came >= c.claimed {
		return m.set(uint32(c.came), now+int64(provenLife), true, now), true
	}
	// None arrived: the peer is away, or slow. A real narrow path is not to be a hole meanwhile.
	return m.lower(max(c.claimed, encap.MinMTU6), c.was, now), false
}

// NewToken returns a number that nobody can guess, for probes; it is not 0.
func NewToken() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:]) | 1
}

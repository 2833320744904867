// Package pathmtu decides which claims about the path MTU to a peer to believe. It does no I/O.
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

// AnswerTime is how long a check waits for answers. It exceeds almost any round-trip time.
const AnswerTime = 250 * time.Millisecond

// Limits on the effect of packet-too-big messages. Anyone who can guess the ports can forge one.
const (
	// provenLife is how long a path MTU is in force that probes have proven (ten minutes: RFC 1191 section 6.3,
	// RFC 8201 section 4). claimedLife is for an unproven one. A repeated claim renews it. Afterwards the
	// underlay's MTU is tried again.
	provenLife  = 10 * time.Minute
	claimedLife = time.Minute
	// changeGap is the least time between two changes for one peer.
	changeGap = 100 * time.Millisecond
	// checkGap is the least time between the starts of two checks.
	checkGap = time.Second
)

// Path is the outer MTU of the path to one peer. Its zero value has learnt nothing. It is safe for concurrent
// use.
type Path struct {
	mtu     atomic.Uint32 // bytes; 0 if none
	expires atomic.Int64  // Unix nanoseconds

	mu      sync.Mutex // guards the fields below, which packets do not use
	proven  bool
	changed int64 // Unix nanoseconds
	check   Check
}

// Check is a claim that probes must prove or refute. The zero Check is none.
type Check struct {
	Token             uint64 // of the check's probes
	claimed, previous int    // outer MTUs: claimed, and in force before or the link's
	Cost              int    // length of the outer headers, bytes
	arrived           int    // outer size of the longest probe that arrived; 0 if none did
	done              bool
	began             int64 // Unix nanoseconds
	// The state before, to restore if a larger probe arrives late.
	oldMTU     uint32
	oldExpires int64
	oldProven  bool
}

// Get returns the MTU in force at now (Unix nanoseconds), or 0.
func (m *Path) Get(now int64) int {
	v := m.mtu.Load()
	if v == 0 || now >= m.expires.Load() {
		return 0
	}
	return int(v)
}

// floor returns the least MTU that probes can prove for the path to dst (RFC 1122 section 3.3.3, RFC 8200
// section 5).
func floor(dst netip.Addr) int {
	if dst.Is6() {
		return encap.MinMTU6
	}
	return encap.MinMTU4
}

// unbelievable reports whether to ignore a claim about the path to dst. Old routers report no value (RFC 1191
// section 5). Over IPv6 no link has an MTU below 1280, and such claims were used to force fragment headers
// (RFC 8201 section 4).
func unbelievable(dst netip.Addr, claimed int) bool {
	return claimed <= 0 || dst.Is6() && claimed < encap.MinMTU6
}

// Learn takes a claim about the path to dst, a peer that answers no probes. sent is the largest datagram sent
// to it, with outer headers, in bytes. A claim alone never sets less than 1280, also over IPv4, because IPv6
// and QUIC need that much. Learn reports whether the MTU changed.
func (m *Path) Learn(dst netip.Addr, claimed, sent int, now int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if unbelievable(dst, claimed) {
		return false
	}
	return m.lower(max(claimed, encap.MinMTU6), sent, now)
}

// lower sets an unproven MTU. mu is held.
func (m *Path) lower(mtu, sent int, now int64) bool {
	if mtu >= sent {
		return false // nothing new
	}
	cur := m.Get(now)
	if m.changed != 0 && now-m.changed < int64(changeGap) || cur != 0 && mtu > cur {
		return false // a larger claim counts only once this one has expired
	}
	if cur == mtu && m.proven {
		return false
	}
	return m.set(uint32(mtu), now+int64(claimedLife), false, now)
}

// set sets an MTU, or none if it is 0. mu is held.
func (m *Path) set(mtu uint32, expires int64, proven bool, now int64) (changed bool) {
	m.changed, m.proven = now, proven
	m.expires.Store(expires)
	return m.mtu.Swap(mtu) != mtu
}

// Sizes returns the outer sizes of the probes: the claimed MTU and the one before. For a claim below 1280 it
// includes 1280. Otherwise a forged claim would count as proven on a path that is only slightly narrower than
// before.
func (c *Check) Sizes() [3]int {
	mid := c.claimed
	if c.claimed < encap.MinMTU6 && encap.MinMTU6 < c.previous {
		mid = encap.MinMTU6
	}
	return [3]int{c.claimed, mid, c.previous}
}

// StartCheck starts a check of a claim. cost is the length of the outer headers in bytes. ok is false if the
// claim changes nothing, or if a check is running or started less than checkGap ago.
func (m *Path) StartCheck(dst netip.Addr, claimed, sent, cost int, now int64) (c Check, ok bool) {
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
	m.check = Check{Token: NewToken(), claimed: max(claimed, floor(dst)), previous: sent, Cost: cost, began: now,
		oldMTU: m.mtu.Load(), oldExpires: m.expires.Load(), oldProven: m.proven}
	return m.check, true
}

// Answered records that a probe of length bytes of UDP payload arrived. It reports whether that refutes the
// claim: a probe of the size sent before arrived, even after the check was concluded.
func (m *Path) Answered(token uint64, length int, now int64) (refuted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.check
	if c.Token == 0 || token != c.Token {
		return false
	}
	if outer := length + c.Cost; outer < c.previous {
		c.arrived = max(c.arrived, outer)
		return false
	}
	if c.done {
		m.set(c.oldMTU, c.oldExpires, c.oldProven, now)
	}
	c.Token, c.done = 0, true // further answers add nothing
	return true
}

// Conclude ends the check with that token. Call it after AnswerTime. It reports whether the MTU changed, and
// whether probes have proven it.
func (m *Path) Conclude(token uint64, now int64) (changed, proven bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.check
	if c.Token != token || c.done {
		return false, false
	}
	c.done = true
	if c.arrived >= c.claimed {
		return m.set(uint32(c.arrived), now+int64(provenLife), true, now), true
	}
	// No probe arrived: the peer is gone or slow. The path may really be narrow, so lower the MTU until the
	// claim expires.
	return m.lower(max(c.claimed, encap.MinMTU6), c.previous, now), false
}

// NewToken returns a random number for probes. It is never 0.
func NewToken() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:]) | 1
}

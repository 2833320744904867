package tunnel

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Limits on what a packet-too-big message can make us do. Anyone who can guess
// our ports can send one.
const (
	// pathMTULife is how long a learnt path MTU holds (RFC 1191 section 6.3, RFC 8201
	// section 4: ten minutes), after which the underlay's own MTU is tried again.
	pathMTULife = 10 * time.Minute
	// The floors: RFC 1122 section 3.3.3 (576) and RFC 8200 section 5 (1280).
	minPathMTU4 = 576
	minPathMTU6 = 1280
	// pathMTUGap is the least time between two changes for one peer.
	pathMTUGap = 100 * time.Millisecond
)

// pathMTU is the outer MTU towards one peer, as packet-too-big messages have it.
// The zero value has learnt nothing. It is safe for concurrent use.
type pathMTU struct {
	mtu     atomic.Uint32 // bytes; 0 if none
	expires atomic.Int64  // Unix nanoseconds
	changed atomic.Int64  // Unix nanoseconds
}

// get is the MTU in force at now (Unix nanoseconds), or 0.
func (m *pathMTU) get(now int64) int {
	v := m.mtu.Load()
	if v == 0 || now >= m.expires.Load() {
		return 0
	}
	return int(v)
}

// learn takes what a message claimed about the path to dst, whose link carries
// linkMTU. It reports whether that changed anything.
func (m *pathMTU) learn(dst netip.Addr, claimed, linkMTU int, now int64) bool {
	floor := minPathMTU4
	if dst.Is6() {
		floor = minPathMTU6
	}
	if claimed <= 0 {
		return false // an old router that does not say (RFC 1191 section 5): not worth guessing
	}
	mtu := max(claimed, floor)
	if mtu >= linkMTU {
		return false // nothing that we do not know
	}
	if last := m.changed.Load(); last != 0 && now-last < int64(pathMTUGap) {
		return false
	}
	if cur := m.get(now); cur != 0 && mtu > cur {
		return false // a larger one is believed only after this one expires
	}
	m.changed.Store(now)
	m.expires.Store(now + int64(pathMTULife))
	return m.mtu.Swap(uint32(mtu)) != uint32(mtu)
}

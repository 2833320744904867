package remote

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxGreeting is how many connections the server keeps that have not yet said whose they are, and maxPerSource
// how many of them may come from one source. Few are enough: a client opens its connections one after the
// other, and each says so within a round trip.
const (
	maxGreeting  = 64
	maxPerSource = 16
)

// arrivals are the connections that have not yet said whose they are, or have and are not answered
// yet. There can only be so many: a connection that says nothing is closed when a new one needs its
// place. Safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	here []*arrival // oldest first
}

// arrival is one of the arrivals.
type arrival struct {
	c      *net.TCPConn
	source netip.Addr
	spoken bool // it is being answered; the lock of arrivals protects it
}

// admit adds n, and closes another that has said nothing if there is no room otherwise. It returns false
// if there is none to close, because all are being answered, which takes little time.
func (a *arrivals) admit(n *arrival) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := map[netip.Addr]int{}
	most := 0
	for _, o := range a.here {
		from[o.source]++
		most = max(most, from[o.source])
	}
	var gone int
	switch {
	case from[n.source] >= maxPerSource:
		gone = a.silent(func(o *arrival) bool { return o.source == n.source })
	case len(a.here) >= maxGreeting:
		// The source with the most connections loses one first.
		if gone = a.silent(func(o *arrival) bool { return from[o.source] == most }); gone < 0 {
			gone = a.silent(func(*arrival) bool { return true })
		}
	default:
		a.here = append(a.here, n)
		return true
	}
	if gone < 0 {
		return false
	}
	_ = a.here[gone].c.Close() // this ends its goroutine
	a.here = append(slices.Delete(a.here, gone, gone+1), n)
	return true
}

// silent returns the place of the oldest arrival that has said nothing and for which fits is true, or -1.
func (a *arrivals) silent(fits func(*arrival) bool) int {
	return slices.IndexFunc(a.here, func(o *arrival) bool { return !o.spoken && fits(o) })
}

// hear notes that n has said something and is being answered, so that admit does not close it.
func (a *arrivals) hear(n *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n.spoken = true
}

// leave removes n, if it is still there.
func (a *arrivals) leave(n *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.here, n); i >= 0 {
		a.here = slices.Delete(a.here, i, i+1)
	}
}

// sourceOf returns what counts as one source in the limits: an IPv4 address, or the /64 of an IPv6 address, since a
// host can use every address of its /64.
func sourceOf(a netip.Addr) netip.Addr {
	a = a.WithZone("")
	if a.Is6() && !a.IsLoopback() {
		p, _ := a.Prefix(64) // 64 is within 128
		return p.Addr()
	}
	return a
}

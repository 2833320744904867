package remote

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// maxGreeting is how many connections may be about to say who they are, and maxPerSource how many
// of them from one source. A client opens one after the other, and each takes a round trip.
const (
	maxGreeting  = 64
	maxPerSource = 16
)

// arrivals are the connections that have not said who they are, or are not answered yet. They are
// bounded so that who says nothing gives way to a newcomer. Safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	here []*arrival // oldest first
}

// arrival is one of them.
type arrival struct {
	c      *net.TCPConn
	source netip.Addr
	spoken bool // it is being answered; the lock of arrivals protects it
}

// admit counts n in, for which it closes another if need be. false means that there is no room:
// everybody is being answered, which takes little time.
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
		// Who holds most gives way first.
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
	_ = a.here[gone].c.Close() // its goroutine ends by that
	a.here = append(slices.Delete(a.here, gone, gone+1), n)
	return true
}

// silent is the place of the oldest that has said nothing and of which fits holds, or -1.
func (a *arrivals) silent(fits func(*arrival) bool) int {
	return slices.IndexFunc(a.here, func(o *arrival) bool { return !o.spoken && fits(o) })
}

// hear notes that n has spoken: it is answered now, and does not give way.
func (a *arrivals) hear(n *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n.spoken = true
}

// leave counts n out, if it is in.
func (a *arrivals) leave(n *arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.here, n); i >= 0 {
		a.here = slices.Delete(a.here, i, i+1)
	}
}

// sourceOf is what limits count a client by: its address, of IPv6 the /64, all of which a host has.
func sourceOf(a netip.Addr) netip.Addr {
	a = a.WithZone("")
	if a.Is6() && !a.IsLoopback() {
		p, _ := a.Prefix(64) // 64 is within 128
		return p.Addr()
	}
	return a
}

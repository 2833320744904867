// Package fair decides which peers to throttle so that no peer fills a shared receive queue. It does no I/O.
package fair

import (
	"cmp"
	"net/netip"
	"slices"
)

// One peer at full rate can fill the shared receive queue. The kernel then drops packets of all peers before
// they are read. A peer that takes more than its share of a full queue is therefore throttled by a filter in
// front of the queue.
const (
	// A queue is full above the fill Full, and nearly empty below empty. The kernel returns up to a quarter of a
	// UDP socket's buffer late (udp_rmem_release).
	Full, empty = 0.5, 0.3
	// fullTicks is how many ticks in a row a queue must be full before a peer is throttled, since bursts fill it
	// too. emptyTicks is how many it must be nearly empty before shares are raised. A share that is too large
	// costs other peers packets until it is lowered again.
	fullTicks, emptyTicks = 3, 5
	// leastShare is the smallest share. A peer is never blocked completely.
	leastShare = 1.0 / 64
	// maxSources bounds the outer addresses in the filter of a port.
	maxSources = 8
)

// Arrival is what one peer sent since the last tick.
type Arrival struct {
	Addr    netip.Addr // the peer's outer address
	Sources int        // upper bound of the outer addresses that it sends from
	Packets uint64
	Active  bool // it sent something lately
}

// Throttled is a peer of which only a share of the packets is admitted.
type Throttled struct {
	Addr    netip.Addr
	Sources int
	Share   float64 // from 1/64 to below 1
}

// Queue decides which peers of one port to throttle. It is not safe for concurrent use.
type Queue struct {
	// Throttled are the throttled peers. Callers only read it.
	Throttled   []Throttled
	full, empty int // ticks in a row
}

// Tick updates Throttled. fill is how full the queue is, from 0 to 1. from has what every peer sent since the
// last tick, and is reordered. Tick reports whether Throttled changed.
func (f *Queue) Tick(fill float64, from []Arrival) (changed bool) {
	active, total := 0, uint64(0)
	for _, a := range from {
		total += a.Packets
		if a.Active {
			active++
		}
	}
	if active < 2 { // no other peer is harmed
		return f.Release()
	}
	switch {
	case fill > Full:
		f.full, f.empty = f.full+1, 0
	case fill < empty:
		f.full, f.empty = 0, f.empty+1
	default:
		f.full, f.empty = 0, 0
	}
	gone := len(f.Throttled)
	f.Throttled = slices.DeleteFunc(f.Throttled, func(h Throttled) bool {
		return !slices.ContainsFunc(from, func(a Arrival) bool { return a.Addr == h.Addr })
	})
	changed = len(f.Throttled) != gone
	switch {
	case f.full >= fullTicks || f.full > 0 && len(f.Throttled) > 0:
		return f.lower(from, total, active) || changed
	case f.empty >= emptyTicks && len(f.Throttled) > 0:
		f.empty = 0
		f.raise()
		return true
	}
	return changed
}

// lower halves the share of each peer that sent more than 9/8 of an equal share.
func (f *Queue) lower(from []Arrival, total uint64, active int) (changed bool) {
	slices.SortFunc(from, func(a, b Arrival) int { return cmp.Compare(b.Packets, a.Packets) })
	sources := 0
	for _, h := range f.Throttled {
		sources += h.Sources
	}
	for _, a := range from {
		if a.Packets*uint64(active)*8 <= total*9 {
			break
		}
		i := slices.IndexFunc(f.Throttled, func(h Throttled) bool { return h.Addr == a.Addr })
		switch {
		case i < 0 && sources+a.Sources <= maxSources:
			f.Throttled = append(f.Throttled, Throttled{a.Addr, a.Sources, 0.5})
			sources += a.Sources
			changed = true
		case i >= 0 && f.Throttled[i].Share > leastShare:
			f.Throttled[i].Share = max(leastShare, f.Throttled[i].Share/2)
			changed = true
		}
	}
	return changed
}

// raise raises each share by half, and removes the peers whose share reaches 1.
func (f *Queue) raise() {
	for i := range f.Throttled {
		f.Throttled[i].Share *= 1.5
	}
	f.Throttled = slices.DeleteFunc(f.Throttled, func(h Throttled) bool { return h.Share >= 1 })
}

// Release ends all throttling. It reports whether there was any.
func (f *Queue) Release() bool {
	had := len(f.Throttled) > 0
	*f = Queue{Throttled: f.Throttled[:0]}
	return had
}

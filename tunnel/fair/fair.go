// Package fair decides which peers are held back so that none fills a receive queue for all. It is pure.
package fair

import (
	"cmp"
	"net/netip"
	"slices"
)

// One peer at full rate can fill the receive queue that all share, and then the kernel drops everybody's
// packets alike, before any of them is read. So a peer that takes more than its share of a full queue is let
// through only in part, by a filter in front of the queue.
const (
	// Full is the part of its size at which a queue is full, and empty that at which it is nearly empty. The
	// kernel gives back up to a quarter of a UDP socket's late (udp_rmem_release).
	Full, empty = 0.5, 0.3
	// fullTicks is for how many ticks in a row the queue must be full before anybody is held back, since bursts
	// fill it too. emptyTicks is for how many it must be nearly empty before more is let through, since letting
	// in too much costs the others packets until it is taken back.
	fullTicks, emptyTicks = 3, 5
	// leastShare is the smallest part let through: a peer is never cut off.
	leastShare = 1.0 / 64
	// maxHeld bounds the outer sources that the filter of a port compares with.
	maxHeld = 8
)

// Arrival is what one peer sent since the tick before.
type Arrival struct {
	Addr    netip.Addr // the peer's outer address
	Sources int        // how many outer addresses it sends from, at most
	Packets uint64
	Active  bool // it sent something lately
}

// Held is a peer of whose packets only a share is let through.
type Held struct {
	Addr    netip.Addr
	Sources int
	Share   float64 // from 1/64 to below 1
}

// Queue decides for one port whose packets are held back. It is pure, and not safe for concurrent use.
type Queue struct {
	// Held are those that are held back now. The caller reads it.
	Held        []Held
	full, empty int // ticks in a row
}

// Tick takes in how full the queue is, from 0 to 1, and what every peer sent since the tick before. It
// reports whether Held is another now. from is reordered.
func (f *Queue) Tick(fill float64, from []Arrival) (changed bool) {
	active, total := 0, uint64(0)
	for _, a := range from {
		total += a.Packets
		if a.Active {
			active++
		}
	}
	if active < 2 { // nobody is harmed
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
	gone := len(f.Held)
	f.Held = slices.DeleteFunc(f.Held, func(h Held) bool {
		return !slices.ContainsFunc(from, func(a Arrival) bool { return a.Addr == h.Addr })
	})
	changed = len(f.Held) != gone
	switch {
	case f.full >= fullTicks || f.full > 0 && len(f.Held) > 0:
		return f.lower(from, total, active) || changed
	case f.empty >= emptyTicks && len(f.Held) > 0:
		f.empty = 0
		f.raise()
		return true
	}
	return changed
}

// lower halves what is let through of each peer that sent clearly more than an equal share of what was read.
func (f *Queue) lower(from []Arrival, total uint64, active int) (changed bool) {
	slices.SortFunc(from, func(a, b Arrival) int { return cmp.Compare(b.Packets, a.Packets) })
	sources := 0
	for _, h := range f.Held {
		sources += h.Sources
	}
	for _, a := range from {
		if a.Packets*uint64(active)*8 <= total*9 {
			break
		}
		i := slices.IndexFunc(f.Held, func(h Held) bool { return h.Addr == a.Addr })
		switch {
		case i < 0 && sources+a.Sources <= maxHeld:
			f.Held = append(f.Held, Held{a.Addr, a.Sources, 0.5})
			sources += a.Sources
			changed = true
		case i >= 0 && f.Held[i].Share > leastShare:
			f.Held[i].Share = max(leastShare, f.Held[i].Share/2)
			changed = true
		}
	}
	return changed
}

// raise lets half as much again through, and forgets the peers of which that is all.
func (f *Queue) raise() {
	for i := range f.Held {
		f.Held[i].Share *= 1.5
	}
	f.Held = slices.DeleteFunc(f.Held, func(h Held) bool { return h.Share >= 1 })
}

// Release lets everything through. It reports whether it did not before.
func (f *Queue) Release() bool {
	had := len(f.Held) > 0
	*f = Queue{Held: f.Held[:0]}
	return had
}
